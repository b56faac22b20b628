"""Starting, following and summing up runs, for the command line and for programs."""
