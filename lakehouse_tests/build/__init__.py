"""Tests of lakehouse.build."""
