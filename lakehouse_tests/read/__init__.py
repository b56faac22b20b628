"""Tests of lakehouse.read."""
