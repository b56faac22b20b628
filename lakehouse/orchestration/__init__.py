"""Dagster: everything here is derived from the tables' contracts."""
