"""A configuration file as a source."""

from __future__ import annotations

import os
from collections.abc import Hashable

from ..._misuse import explained
from .._loaded import LoadedConfig
from .._source import Rank
from ..formats import Ask, file_name, load_config
from ._stamps import FILE_INTERVAL, stamp_of


@explained
class FileSource:
    """A configuration file; `open_servers` makes one of each path that it gets.

    A relative path is one below the working directory in which this is made, also if the program enters another later.

    Args:
        path: the file, as for `load_config`.
        ask: as for `load_config`.
        env_file: as for `load_config`; a change of it counts as a change of the configuration.

    Raises:
        ConfigError: this is not a path.
    """

    rank = Rank.FILE
    interval = FILE_INTERVAL
    settles = True

    def __init__(
        self, path: str | os.PathLike[str], *, ask: Ask | None = None, env_file: str | os.PathLike[str] | None = None
    ) -> None:
        self._path = os.path.abspath(file_name(path, "FileSource: path"))
        self._ask = ask
        self._env_file = None if env_file is None else os.path.abspath(file_name(env_file, "FileSource: env_file"))

    @property
    def name(self) -> str:
        """The absolute path."""
        return self._path

    def look(self) -> Hashable:
        """Return the identity, size and time of the files; None for one that does not exist."""
        return stamp_of(self._path), None if self._env_file is None else stamp_of(self._env_file)

    def read(self) -> tuple[LoadedConfig, ...]:
        """Load the file.

        Raises:
            ConfigError: the file cannot be read.
        """
        return (load_config(self._path, ask=self._ask, env_file=self._env_file),)
