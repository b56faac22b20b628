"""The sample: its tables from end to end, its generators, and what is independent of both to compare them with."""
