"""Tests of the lakehouse, laid out as the package is."""
