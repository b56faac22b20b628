"""Tests of lakehouse.privacy."""
