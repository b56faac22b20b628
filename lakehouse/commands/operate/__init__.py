"""Commands that run and care for the lakehouse."""
