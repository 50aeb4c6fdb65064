"""A configuration file as a source."""

from __future__ import annotations

import os
from collections.abc import Hashable

from ..formats import Ask, LoadedConfig, file_name, load_config
from ._source import Rank
from ._stamps import FILE_INTERVAL, stamp_of


class FileSource:
    """A configuration file; `open_servers` makes one of each path that it gets.

    Args:
        path: the file, as for `load_config`.
        ask: as for `load_config`.

    Raises:
        ConfigError: this is not a path.
    """

    rank = Rank.FILE
    interval = FILE_INTERVAL
    settles = True

    def __init__(self, path: str | os.PathLike[str], *, ask: Ask | None = None) -> None:
        self._path = file_name(path)
        self._ask = ask

    @property
    def name(self) -> str:
        """The absolute path."""
        return os.path.abspath(self._path)

    def look(self) -> Hashable:
        """Return the identity, size and time of the file; None if it does not exist."""
        return stamp_of(self._path)

    def read(self) -> tuple[LoadedConfig, ...]:
        """Load the file.

        Raises:
            ConfigError: the file cannot be read.
        """
        return (load_config(self._path, ask=self._ask),)
