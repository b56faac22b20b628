"""Tests of lakehouse.kafka."""
