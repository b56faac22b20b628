"""Its layer."""
