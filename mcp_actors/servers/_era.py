"""The protocol era of a server: what a connect begins with, and what the next one remembers.

There are two eras. In the *legacy* one a session begins with ``initialize``; since 2026-07-28 there are no sessions,
and ``server/discover`` says what a server can do. With ``protocol="auto"`` a connect finds out (``_negotiation``).

Only what was found out is remembered: an answer, or a process that served once it was started again without the
question. An era that was chosen because an answer did not come counts for that connection alone. A connect that begins
with something remembered and fails forgets it: after a restart the server may be another version.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from attrs import frozen
from mcp.types import DiscoverResult

from ..config import speaks_sse

if TYPE_CHECKING:
    from mcp import Client

    from ..config import ServerConfig

__all__ = ["ASK", "LEGACY", "QUIRK", "Era", "era_after_failure", "era_of", "first_era"]


@frozen
class Era:
    """What a connect begins with.

    Attributes:
        mode: how `mcp.Client` is to negotiate: ``"auto"``, ``"legacy"``, or a version since 2026-07-28.
        discovered: what the server said when it was asked last, so that it need not be asked again.
        quirk: not None if the server does not survive the question, so that the next run of a program had better not
            ask either: its name and version, for as long as it has them; empty if they are not known yet.
    """

    mode: str
    discovered: DiscoverResult | None = None
    quirk: str | None = None


ASK: Final = Era("auto")
LEGACY: Final = Era("legacy")
QUIRK: Final = Era("legacy", quirk="")


def first_era(config: ServerConfig) -> Era:
    """Return what the first connect begins with. HTTP with SSE is older than the question for the era."""
    return LEGACY if speaks_sse(config.transport, os.environ) else Era(config.protocol)


def era_of(client: Client, begun_with: Era) -> Era | None:
    """Return what the next connect may begin with, after one that succeeded; None if it has to ask again."""
    discovered = client.session.discover_result
    if discovered is None:
        return LEGACY if begun_with.quirk is None else _era_of_quirk(client, begun_with.quirk)
    if discovered.capabilities.tools is None:
        # It would be asked for no tools either, and a connect in which nothing is sent proves nothing.
        return None
    return Era(client.protocol_version, discovered)


def _era_of_quirk(client: Client, known: str) -> Era | None:
    """Return the era of a server that did not survive the question once; another version of it may."""
    identity = client.server_info
    version = f"{identity.name} {identity.version}" if identity is not None else ""
    return Era("legacy", quirk=version) if known in ("", version) else None


def era_after_failure(era: Era, *, remembered: Era | None, answered: bool) -> Era | None:
    """Return what the next connect may begin with, after one that failed in `era`; None if it has to ask (again).

    Args:
        era: what it came to.
        remembered: what it began with; None if it asked.
        answered: whether the server refused ``initialize``: then it is of the modern era after all.
    """
    # That legacy is left to be tried is no knowledge, but the question is known to do harm.
    return era if era.mode == "legacy" and remembered is None and not answered else None
