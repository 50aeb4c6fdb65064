"""Tests of the user's callbacks."""
