"""Hosts in clusters of their own, on this machine."""
