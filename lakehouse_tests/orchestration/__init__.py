"""Tests of lakehouse.orchestration."""
