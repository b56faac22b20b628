"""A table that `lakehouse doctor` builds to see whether the engine works."""
