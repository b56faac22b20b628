"""Commands that land, build and take in data."""
