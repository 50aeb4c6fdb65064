"""The protocol era with which a connect begins.

There are two eras. In the *legacy* one a session begins with ``initialize``; since 2026-07-28 there are no sessions,
and ``server/discover`` returns the capabilities of a server. With ``protocol="auto"`` a connect negotiates the era
(``_negotiation``).

Only certain knowledge is remembered: an answer, or a process that served when it was started again without
``server/discover``. An era that was chosen because no answer came counts for that connection alone. A connect that
begins with a remembered era and fails forgets it: the server may have been upgraded.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from attrs import frozen
from mcp.types import DiscoverResult

from ...config import speaks_sse

if TYPE_CHECKING:
    from mcp.types import Implementation

    from ...config import ServerConfig


@frozen
class Era:
    """The era that a connect begins with.

    Attributes:
        mode: how the connect negotiates: ``"auto"``, ``"legacy"``, or a version since 2026-07-28.
        discovered: the last answer of the server to ``server/discover``, which then need not be sent again.
        quirk: not None if the server does not survive ``server/discover``, so that the next run of the program skips
            it: the name and version of that server; empty if they are not known yet.
    """

    mode: str
    discovered: DiscoverResult | None = None
    quirk: str | None = None


ASK: Final = Era("auto")
LEGACY: Final = Era("legacy")
QUIRK: Final = Era("legacy", quirk="")


def first_era(config: ServerConfig) -> Era:
    """Return the era that the first connect begins with. HTTP with SSE is older than ``server/discover``."""
    return LEGACY if speaks_sse(config.transport, os.environ) else Era(config.protocol)


def era_of(discovered: DiscoverResult | None, version: str, identity: Implementation | None, begun: Era) -> Era | None:
    """Return the era to remember after a connect that succeeded; None if the next one has to negotiate again.

    Args:
        discovered: the answer to ``server/discover``; None in the legacy era.
        version: the protocol version that was agreed on.
        identity: the name and version of the server, if it has named itself.
        begun: the era that the connect began with.
    """
    if discovered is None:
        return LEGACY if begun.quirk is None else _era_of_quirk(identity, begun.quirk)
    if discovered.capabilities.tools is None:
        # A connect would send neither server/discover nor tools/list, and so prove nothing about the server.
        return None
    return Era(version, discovered)


def _era_of_quirk(identity: Implementation | None, known: str) -> Era | None:
    """Return the era of a server that did not survive ``server/discover``; None if it is another version by now."""
    version = f"{identity.name} {identity.version}" if identity is not None else ""
    return Era("legacy", quirk=version) if known in ("", version) else None


def era_after_failure(era: Era, *, remembered: Era | None, answered: bool) -> Era | None:
    """Return the era to remember after a connect that failed in `era`; None if the next one has to negotiate again.

    Args:
        era: the era that the connect ended in.
        remembered: the era that it began with; None if it negotiated.
        answered: True if the server refused ``initialize``: then it is a modern server after all.
    """
    # Nothing is certain about the era, but server/discover is known to end this server, so it is not sent again.
    return era if era.mode == "legacy" and remembered is None and not answered else None
