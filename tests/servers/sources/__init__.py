"""The tests of groups of servers."""
