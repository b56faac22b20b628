"""What the lakehouse knows about itself: history, quarantined rows, decisions, erasures."""
