"""The interface of a source of servers (`Source`)."""

from __future__ import annotations

from collections.abc import Hashable
from enum import IntEnum
from typing import Protocol, runtime_checkable

from ._loaded import LoadedConfig


class Rank(IntEnum):
    """The precedence of a source. If several have a server of the same name, the lowest rank wins, then the first."""

    CODE = 0
    TABLE = 1
    DIRECTORY = 2
    FILE = 3


@runtime_checkable
class Source(Protocol):
    """A place where servers are written down, which `open_servers` reads and, with ``watch=True``, follows.

    `look` and `read` block. A group calls them in a thread, one call at a time for each source, and abandons a call
    that hangs when the group is left. So they must have timeouts of their own, and limits for what they return.

    Attributes:
        name: names the source in errors, logs and ``ServerConfig.source``, without credentials. No other source of the
            group may have the same name.
        rank: its precedence, if several have a server of the same name.
        interval: seconds between two looks.
        settles: whether a change is awaited until two looks in a row are equal, because writers write in pieces.
    """

    @property
    def name(self) -> str: ...  # see Attributes
    @property
    def rank(self) -> Rank: ...  # see Attributes
    @property
    def interval(self) -> float: ...  # see Attributes
    @property
    def settles(self) -> bool: ...  # see Attributes

    def look(self) -> Hashable:
        """Return a value that differs from an earlier one if `read` may return something else now.

        Raises:
            ConfigError: the source cannot be reached.
        """

    def read(self) -> tuple[LoadedConfig, ...]:
        """Return what is written there: one part, or one for each file of a directory.

        Raises:
            ConfigError: the source cannot be reached.
        """
