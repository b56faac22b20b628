"""Tests of lakehouse.delta."""
