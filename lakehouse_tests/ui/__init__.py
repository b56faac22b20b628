"""The web interface in a real browser, in front of a real server, daemon and engine."""
