"""Earlier and other versions of a table: restore, candidates, comparison, upkeep of old files."""
