"""Servers that do not keep to the specification: one table, over every transport that can carry a row."""
