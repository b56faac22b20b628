"""Tests of lakehouse.versions."""
