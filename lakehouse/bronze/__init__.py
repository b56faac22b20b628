"""Raw tables, one a source: what arrived, by arrival day, with file and row."""
