"""A directory of manifests, YAML files of ``kind: MCPServer`` (`DirectorySource`)."""

from __future__ import annotations

import os
from collections.abc import Hashable
from typing import Final

from ..._errors import ConfigError
from ..._misuse import explained
from .._loaded import LoadedConfig
from .._source import Rank
from ..formats import Entry, bad, decode, file_name, load_entries, permission_warnings, read_bytes
from ._manifest import TYPED_KEYS, entry_of
from ._stamps import FILE_INTERVAL, stamp_of
from ._yaml import read_documents

MAX_FILES: Final = 1000
MAX_BYTES: Final = 256 * 1024
"""Bytes of one file. The parser is written in Python and takes about a second for that."""


@explained
class DirectorySource:
    """The files ``*.yaml`` and ``*.yml`` in a directory, each with one or more servers as ``kind: MCPServer``.

    Files whose names begin with a dot, and directories below it, are left out. Requires PyYAML:
    ``pip install 'mcp-actors[yaml]'``.

    Args:
        path: the directory, in which ``~`` is expanded.

    Raises:
        ConfigError: this is not a path.
    """

    rank = Rank.DIRECTORY
    interval = FILE_INTERVAL
    settles = True

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.path.abspath(file_name(path, "DirectorySource: path"))

    def __repr__(self) -> str:
        return f"<DirectorySource {self._path}>"

    @property
    def name(self) -> str:
        """The absolute path."""
        return self._path

    def look(self) -> Hashable:
        """Return the identity, size and time of each file.

        Raises:
            ConfigError: the directory cannot be read.
        """
        return tuple((file, stamp_of(file)) for file in self._files())

    def read(self) -> tuple[LoadedConfig, ...]:
        """Load the files. A file that is not valid is an error in the result, and the others are loaded.

        Raises:
            ConfigError: the directory cannot be read.
        """
        return tuple(map(_load, self._files()))

    def _files(self) -> list[str]:
        try:
            with os.scandir(self._path) as found:
                names = [each.name for each in found if each.name.endswith((".yaml", ".yml")) and each.name[0] != "."]
        except OSError as error:
            problem = f"the directory cannot be read ({error.strerror}); check the path and its permissions"
            raise bad(self._path, "", problem) from None
        if len(names) > MAX_FILES:
            raise bad(self._path, "", f"there are more than {MAX_FILES} files; check that it is the right directory")
        return [os.path.join(self._path, name) for name in sorted(names)]


def _load(file: str) -> LoadedConfig:
    warnings: list[str] = []
    try:
        entries: list[Entry] | ConfigError = _entries(file, warnings)
    except ConfigError as error:
        entries = error
    return load_entries(file, entries, file=file, warnings=warnings)


def _entries(file: str, warnings: list[str]) -> list[Entry]:
    data, status = read_bytes(file)
    warnings += permission_warnings(file, status)
    if len(data) > MAX_BYTES:
        raise bad(file, "", f"the file is larger than {MAX_BYTES // 1024} KiB; check that it is the right one")
    text = decode(file, data)
    if isinstance(text, ConfigError):
        raise text
    documents = read_documents(file, text, TYPED_KEYS)
    return [entry for entry in (entry_of(file, each) for each in documents) if entry is not None]
