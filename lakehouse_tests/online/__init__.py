"""Tests of features online."""
