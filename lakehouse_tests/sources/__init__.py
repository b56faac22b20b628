"""Tests of the landing zone and the sample data."""
