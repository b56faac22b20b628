"""Where data comes from: the landing zone, and generators of sample data to put into it."""
