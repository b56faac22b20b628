"""Typed tables by event day: duplicates removed, row rules applied."""
