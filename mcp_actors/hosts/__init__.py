"""Run gateways where the engine of a cluster places them.

The engine starts, names and restarts a host, but carries no calls: a group connects by a `Socket`, which asks the
engine for the address at each connect. Each engine has a module and an extra of the same name: ``ray``. Only programs
import the modules.
"""

from __future__ import annotations

from .._exports import publish

__all__: list[str] = []

publish(__name__, globals())
