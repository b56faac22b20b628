"""Tests of lakehouse.servers."""
