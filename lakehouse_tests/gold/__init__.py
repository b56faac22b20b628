"""Tests of lakehouse.gold."""
