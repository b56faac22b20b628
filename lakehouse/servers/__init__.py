"""Programs of this machine that serve a lakehouse (engines, a broker, Redis): their folders, ports, start and end."""
