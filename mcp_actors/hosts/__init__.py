"""Run gateways where the engine of a cluster places them.

The engine starts a host, gives it a name and restarts it. It carries no calls: a group reaches the host through a
`Socket`, which asks the engine for the address at each connect. Each engine has a module, and is an extra: ``ray`` is
for Ray.

Programs import the modules; no other folder does. They use ``gateway``, the servers and the configuration.
"""

from __future__ import annotations

from .._exports import publish

__all__: list[str] = []

publish(__name__, globals())
