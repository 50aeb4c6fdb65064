"""Mutate the pure decisions, and prove that their tests notice.

mutmut makes the mutants and runs the tests that ``pyproject.toml`` names for them. ``survivors.toml`` has each mutant
that no test can catch, and why. ``python -m tests.mutants`` fails if another one survives, or if one of these does not.
"""
