"""What an entry is read with: the file that it is in, and who is to be told or asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from .._inputs import Inputs


@attrs.frozen
class Surroundings:
    """What an entry is read with.

    Attributes:
        source: the file, as messages call it.
        origin: where it is, for `ServerConfig.source`.
        variables: what ``${…}`` may name beside environment variables and inputs.
        inputs: what a person is asked.
        warn: takes a warning: the place, and what is to be said.
        cwd: the directory in which commands start if their entry names none, and where a relative one begins.
        only: the names of the servers that are wanted, whatever their entries say; None: those that are enabled.
        connect_timeout: what the environment says about it, as the argument of `ServerConfig`; empty if nothing.
        of_vs_code: whether arguments of commands may begin with ``~``.
    """

    source: str
    origin: str
    variables: Mapping[str, str]
    inputs: Inputs
    warn: Callable[[str, str], None]
    cwd: str | None = None
    only: frozenset[str] | None = None
    connect_timeout: Mapping[str, float | None] = attrs.field(factory=dict)
    of_vs_code: bool = False

    def is_wanted(self, name: str, *, enabled: bool) -> bool:
        """Whether a server is to be used, and so to be asked for."""
        return enabled if self.only is None else name in self.only
