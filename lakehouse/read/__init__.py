"""Tables as frames and as files: the lake, columns that were added later, rows by key."""
