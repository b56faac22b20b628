"""Rows set aside: shown without personal data, replayed or discarded."""
