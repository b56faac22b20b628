"""Kafka: a broker on this machine for development and tests, and what there is to know of topics."""
