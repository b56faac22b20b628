"""Tests of training sets."""
