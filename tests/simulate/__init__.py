"""Simulate groups of servers: random plans under a mock clock, each repeated by one number.

``plan`` draws what happens from the seed. ``world`` carries it out with ``servers``, which are in memory, behind
``pipes`` or behind ``http``. ``invariants`` says what must hold whatever happens, and ``diagram`` draws a run as text.
``defects`` puts bugs into the library, to prove that they are found. ``programs`` disturbs programs of
actors, without a server. ``python -m tests.simulate --help`` has options.
"""
