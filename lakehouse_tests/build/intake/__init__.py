"""Tests of lakehouse.build.intake."""
