"""Pools: equal actors behind one reference.

Only the face of the kernel imports this room.
"""

from __future__ import annotations

from ._pool import Pool as Pool
