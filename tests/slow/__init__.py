"""Tests at default values: waits of 12 to 45 s, outages, probe intervals. Run by ``nox -s slow``, never by the suite.

Each has a quick sibling in the suite, with its times scaled down. This folder is named in ``norecursedirs``, so pytest
collects it only if the command line names it: ``pytest tests/slow``.
"""
