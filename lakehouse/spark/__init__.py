"""The Spark engine: its jars and its sessions."""
