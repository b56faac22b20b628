"""Queries: a text is checked against lists, and only what is made from its tree is run."""
