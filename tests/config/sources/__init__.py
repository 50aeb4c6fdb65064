"""Tests of the readers of configuration files."""
