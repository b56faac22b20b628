"""Models and features for readers."""
