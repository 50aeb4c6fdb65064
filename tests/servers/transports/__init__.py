"""Tests of the transports, from opening a link to the end of the connection."""
