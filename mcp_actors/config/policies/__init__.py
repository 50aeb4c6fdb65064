"""Policies and limits of one server, as frozen data.

They decide nothing themselves; `mcp_actors.servers` does, by them. Imported by `ServerConfig`, by the readers of files
and by the servers. This room uses the validators of the folder around it and nothing else of it.
"""

from __future__ import annotations

from ._breaker import BreakerPolicy as BreakerPolicy
from ._health import HealthPolicy as HealthPolicy
from ._limits import Limits as Limits
from ._restart import RestartPolicy as RestartPolicy
from ._retry import RetryBudget as RetryBudget, RetryPolicy as RetryPolicy
