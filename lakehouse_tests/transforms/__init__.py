"""Tests of lakehouse.transforms."""
