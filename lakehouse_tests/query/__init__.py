"""Queries: what is refused, and that the engine has walls of its own."""
