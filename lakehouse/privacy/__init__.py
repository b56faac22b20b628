"""Finding and erasing a person's rows, in tables and their logs."""
