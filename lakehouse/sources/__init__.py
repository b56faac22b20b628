"""Where data comes from: the landing zone, databases, and who is in them."""
