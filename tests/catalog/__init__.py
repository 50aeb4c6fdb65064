"""The tests of the tool catalogue."""
