"""Metrics and health of groups."""
