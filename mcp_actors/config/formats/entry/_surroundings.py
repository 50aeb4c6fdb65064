"""The context of an entry: file, variables, and receiver of warnings."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from .._inputs import Inputs


@attrs.frozen
class Surroundings:
    """The context of reading an entry.

    Attributes:
        source: the file as messages name it.
        origin: the absolute path of the file, for `ServerConfig.source`.
        variables: the values of ``${…}`` besides environment variables and inputs.
        inputs: the values that a person is asked for.
        warn: called with the place and the text of a warning.
        cwd: the directory in which commands start, and to which relative directories refer; None for the current one.
        only: the names of the servers to ask inputs for, even if they are disabled; None for the enabled ones.
        connect_timeout: the argument of `ServerConfig` that the environment sets; empty without one.
        of_vs_code: whether ``~`` is expanded in arguments of commands.
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
        """Return whether the inputs of a server are asked for."""
        return enabled if self.only is None else name in self.only
