"""Measure the cost of calls, imports and idle actors: ``python -m tests.benchmarks``, or ``nox -s bench``.

Every figure that can be one is a ratio to something that is measured in the same run, in turns with it, so that it
means the same on another machine. Some have a bound; the run fails if one is missed. The others are for information.
"""
