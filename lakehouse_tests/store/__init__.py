"""Tests of lakehouse.store."""
