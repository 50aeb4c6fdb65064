"""Limit the servers, concurrent connects and processes of a group."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from attrs import asdict, frozen

from ..._errors import ConfigError
from ..._misuse import is_whole
from ..._text import bad_option
from ...transports import Capacity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...config import ServerConfig

MAX_SERVERS: Final = 50
"""Default of ``max_servers``: more than people list in a file, and less than a loop adds by mistake."""

MAX_STARTING: Final = 16
"""Default of ``max_starting``: a cold start unpacks a package, and more of them at a time only take longer."""


@frozen
class GroupLimits:
    """The limits of a group.

    Attributes:
        max_servers: the number of enabled servers; each replica counts.
        max_starting: the number of servers that connect at a time.
        max_processes: the number of processes that run at a time; None disables the limit.

    Raises:
        ConfigError: a limit is not a whole number.
    """

    max_servers: int = MAX_SERVERS
    max_starting: int = MAX_STARTING
    max_processes: int | None = None

    def __attrs_post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not is_whole(value, 1) and (name, value) != ("max_processes", None):
                raise bad_option(name, value, f"is not valid; pass a whole number of 1 or more, like {name}=16")

    def capacity(self) -> Capacity:
        """Return what the servers of a group with these limits share."""
        return Capacity(starting=self.max_starting, processes=self.max_processes or math.inf)

    def check_number(self, configs: Iterable[ServerConfig]) -> None:
        """Check the number of servers that a group would have.

        Raises:
            ConfigError: there are too many.
        """
        servers = sum(config.replicas for config in configs)
        if servers > self.max_servers:
            raise ConfigError(
                f"{servers} servers are too many for this group (max_servers={self.max_servers}, each replica counts); "
                f"disable or remove some, or open it with max_servers={servers}",
                source="open_servers",
                path="max_servers",
            )
