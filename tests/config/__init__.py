"""The tests of what to connect to."""
