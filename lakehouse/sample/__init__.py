"""The sample: made-up files of two shops, and a demonstration of the tables that read them. No engine code needs it."""
