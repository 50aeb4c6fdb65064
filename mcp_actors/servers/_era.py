"""The protocol era of a server: how a connect finds it out, and what is remembered of it for the next one.

There are two eras. In the *legacy* one a session begins with ``initialize``; since 2026-07-28 there are no sessions,
and ``server/discover`` says what a server can do. With ``protocol="auto"`` a server is asked that first (the *probe*).
Some legacy servers do not survive the question and some do not answer it; a process that does either is started once
more, in legacy.

What was found is remembered with the server, so that a restart does not ask again. A connect that begins with it and
fails forgets it: after a restart the server may be another version.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import trio
from attrs import frozen
from mcp import Client, MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.types import UNSUPPORTED_PROTOCOL_VERSION, DiscoverResult, Implementation

from ..config import speaks_sse
from ._background import open_background
from ._input_required import MAX_ROUNDS

if TYPE_CHECKING:
    from ..config import ServerConfig
    from ._incoming import ClientCallbacks
    from ._record import ServerRecord
    from .transports import Link

__all__ = ["Era", "Negotiation", "ProbeUnanswered"]

logger = logging.getLogger("mcp_actors.servers")

# It receives for a session. A Ctrl-C in the middle of a message would be lost with that; the main task gets it instead.
trio.lowlevel.enable_ki_protection(JSONRPCDispatcher.run)

CLIENT: Final = Implementation(name="mcp_actors", version=version("mcp-actors"))
"""What servers are told about who connects."""

PROBE_SHARE: Final = 1 / 3
"""Part of the connect time-out that a process has to start and to answer the probe: 10 s of the default 30, which is
what the SDK gives to the answer alone. The rest is for its second start, which thus may take twice as long."""

ANSWER_SHARE: Final = 1 / 10
"""Part of it that a process has to answer once it has read the probe: 3 s of the default 30. It has started by then;
what it may still have to do is to open a database. Servers made with the SDK before 1.9 read the probe, break, and stay
silent until their input ends."""

UNBOUNDED: Final = 30.0
"""Seconds of which these parts are taken if the connect has no bound: a process may be silent for ever."""

LOOK_EVERY: Final = 0.05
"""Seconds between two looks whether it has; there is no event for that."""


@frozen
class Era:
    """What a connect begins with.

    Attributes:
        mode: how `mcp.Client` is to negotiate: ``"auto"``, ``"legacy"``, or a version since 2026-07-28.
        discovered: what the server said when it was asked last, so that it need not be asked again.
        patient: whether the probe may take all the time that the connect has.
    """

    mode: str
    discovered: DiscoverResult | None = None
    patient: bool = False


LEGACY: Final = Era("legacy")
PROBE: Final = Era("auto")
PATIENT: Final = Era("auto", patient=True)


class ProbeUnanswered(Exception):
    """A process did not answer the probe in its time."""


class Negotiation:
    """The eras that one connect tries; it also leaves in the record what the next one is to begin with."""

    def __init__(self, record: ServerRecord) -> None:
        self._record = record
        self._remembered = record.era
        self._era = record.era or _first_era(record.config)

    @asynccontextmanager
    async def patience(self, link: Link) -> AsyncIterator[Callable[[], None]]:
        """Bound the probe, until what this yields is called: then the server has answered.

        Raises:
            ProbeUnanswered: it has not.
        """
        if self._era != PROBE or link.pid is None:
            yield lambda: None
            return
        timeout = self._record.config.connect_timeout or UNBOUNDED
        with trio.move_on_after(PROBE_SHARE * timeout) as scope:
            async with open_background() as background:
                task = f"{self._record.config.name}:probe"
                background.start_soon(_hurry_when_heard, scope, link, ANSWER_SHARE * timeout, name=task)
                yield partial(setattr, scope, "deadline", math.inf)
        if scope.cancelled_caught:
            raise ProbeUnanswered

    def client(self, link: Link, callbacks: ClientCallbacks) -> Client:
        """The client for this link; it negotiates when it is entered."""
        era = self._era
        return Client(
            link.target,
            mode=era.mode,
            prior_discover=era.discovered,
            client_info=CLIENT,
            input_required_max_rounds=MAX_ROUNDS,
            extensions=self._record.config.extensions,
            **callbacks,
        )

    async def finish(self, client: Client) -> None:
        """Ask the server what it can do, if a version was configured: the SDK would take it for nothing.

        Raises:
            mcp.MCPError: it does not speak that version.
        """
        if self._era.mode not in ("auto", "legacy") and self._era.discovered is None:
            answer = await client.session.send_discover(self._era.mode)
            client.session.adopt(DiscoverResult.model_validate(answer))

    def begins_anew(self, link: Link | None, exc: Exception) -> bool:
        """Whether the probe was the end of a process, so that it has to be started once more; now in legacy."""
        ended = link is not None and _ended_at_the_probe(link)
        if self._era != PROBE or not (ended or isinstance(exc, ProbeUnanswered)):
            return False
        what = "ended at" if ended else "does not answer"
        logger.info("server %r: its process %s server/discover; starting it in legacy", self._record.config.name, what)
        self._era = LEGACY
        return True

    def succeeded(self, client: Client) -> None:
        """Remember what the server speaks."""
        if self._record.config.protocol == "auto":
            self._record.era = _era_of(client)

    def failed(self, error: BaseException | None) -> None:
        """Take into account what the connect failed with; None if it took too long."""
        if self._record.config.protocol == "auto":
            self._record.era = _era_after_failure(self._era, error, remembered=self._remembered)


def _first_era(config: ServerConfig) -> Era:
    """What the first connect begins with. HTTP with SSE is older than the question for the era."""
    return LEGACY if speaks_sse(config.transport, os.environ) else Era(config.protocol)


async def _hurry_when_heard(scope: trio.CancelScope, link: Link, seconds: float) -> None:
    """Give a server no more than some seconds from the moment in which it has read what was sent to it."""
    while not link.heard and scope.deadline < math.inf:  # noqa: ASYNC110 - there is no event, see LOOK_EVERY
        await trio.sleep(LOOK_EVERY)
    if scope.deadline < math.inf:
        scope.deadline = min(scope.deadline, trio.current_time() + seconds)


def _ended_at_the_probe(link: Link) -> bool:
    """Whether a process was lost while it negotiated; one that has not even read the probe died of something else."""
    return link.pid is not None and link.lost and link.failure is None and not link.obituary().unread


def _era_of(client: Client) -> Era | None:
    """What the next connect may begin with, after one that succeeded; None if it has to ask again."""
    discovered = client.session.discover_result
    if discovered is None:
        return LEGACY
    if discovered.capabilities.tools is None:
        # It would be asked for no tools either, and a connect in which nothing is sent proves nothing.
        return None
    return Era(client.protocol_version, discovered)


def _era_after_failure(era: Era, error: BaseException | None, *, remembered: Era | None) -> Era | None:
    """What the next connect may begin with, after one that failed in `era`; None if it has to ask (again)."""
    if era == LEGACY and isinstance(error, MCPError) and error.code == UNSUPPORTED_PROTOCOL_VERSION:
        # It is of the modern era after all, so if it was asked, it was not given enough time.
        return PATIENT
    # That legacy is left to be tried is no knowledge, but it gives a slow process all the time in the next connect.
    return LEGACY if era == LEGACY and remembered is None else None
