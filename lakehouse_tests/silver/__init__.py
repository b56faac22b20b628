"""Tests of lakehouse.silver."""
