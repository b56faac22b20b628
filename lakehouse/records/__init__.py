"""What the lakehouse knows about itself: history, failures, decisions, erasures."""
