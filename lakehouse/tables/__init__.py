"""The storage engine: everything a table needs between its transform and its readers."""
