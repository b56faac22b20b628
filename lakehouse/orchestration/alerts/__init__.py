"""Alerts: what fails is told once to those who own it, and again when it is well."""
