"""Commands that decide about rows and versions."""
