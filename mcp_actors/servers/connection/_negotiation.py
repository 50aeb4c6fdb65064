"""Negotiate the protocol era with a server, in limited time.

A legacy server may ignore or refuse ``server/discover``, or exit. Silence may also mean a slow start. `Negotiation`
agrees on an era for each connect, and `ConnectLimits` limits the time of each attempt.

=================================================  ====================================================
a process that was sent ``server/discover``        then
=================================================  ====================================================
stays silent                                       is also sent ``initialize``, on the same connection
is still silent when all time-outs have expired    is started again as a legacy server
exits                                              is started again as a legacy server
answers with a modern version                      is a modern server
refuses, and lists only modern versions            gets no further request; the connect fails
answers otherwise                                  is also sent ``initialize``, at once
=================================================  ====================================================

Owns: the era and time limits of a connect; its tasks.
Writes: the era for the next connect; the record's warnings about slow connects; the session's era; the log. Ends the
server's turn to connect. Marks the link as lost once no process can answer.
Calls: config, servers, transports.
"""

from __future__ import annotations

import math
import signal
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import anyio
import trio
from attrs import define, field
from mcp import MCPError
from mcp.types import UNSUPPORTED_PROTOCOL_VERSION, DiscoverResult, Implementation, InitializeResult
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic_core import ValidationError

from ..._errors import HttpStatusError
from ..._foreign import Log
from ..._tasks import open_background
from ...config import AdaptedExtension
from ...transports import INITIALIZED
from .._dispatcher import LinkDispatcher
from .._eras import (
    ASK,
    LEGACY,
    QUIRK,
    NoCommonVersion,
    era_after_failure,
    era_of,
    first_era,
    is_modern,
    offered_versions,
)
from .._failures import TimedOut, still_connecting
from .._session import ConnectionSession

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ..._tasks import Background
    from ...config import ServerConfig
    from ...transports import Link, Turn
    from .._failures import Limit
    from .._session import SessionCallbacks
    from ..record import ConnectionLife, ConnectionRecord


logger = Log("mcp_actors.servers")


OWN_CLIENT: Final = Implementation(name="mcp_actors", version=version("mcp-actors"))
"""Introduces this client to servers, unless ``client_info`` is configured."""

UNBOUNDED: Final = 30.0
"""Seconds instead of a ``connect_timeout`` of None, for the delay before ``initialize``."""

DISCOVER_TIMEOUT: Final = 10.0
"""Seconds to answer ``server/discover`` for servers without a process, as in the SDK."""


class Negotiation:
    """The eras that one connect tries; records the first era of the next connect.

    If a gateway opens the server for a client that answers questions, ``initialize`` comes first
    (`NextConnect.legacy_first`).
    """

    def __init__(self, record: ConnectionRecord) -> None:
        self._record = record
        self._remembered = record.next_connect.era
        begins_legacy = record.next_connect.legacy_first and record.config.protocol == "auto"
        self._era = record.next_connect.era or (LEGACY if begins_legacy else first_era(record.config))
        self._began = trio.current_time()
        self._asked_both = False
        self._hurried = False
        self._unanswered = False

    @asynccontextmanager
    async def limits(self) -> AsyncIterator[ConnectLimits]:
        """Wait for the server's turn to connect, and bound the attempt until `ConnectLimits.connected` is called.

        Raises:
            TimedOut: the attempt took too long.
        """
        self._asked_both = False
        config, server, life = self._record.config, self._record.server, self._record.life

        def late(why: str) -> None:
            life.note_overdue(f"server {config.name!r}: {why}", logged=True)

        until = self._began + (config.connect_timeout or math.inf)
        async with server.capacity.turn(server.place, until, late, life.level_of_attempt) as turn:
            limits = ConnectLimits(config, life, began=self._began, hurried=self._hurried, turn=turn)
            with limits.scope:
                yield limits
        if limits.scope.cancelled_caught:
            raise limits.over()

    def session(self, link: Link, callbacks: SessionCallbacks, join_handler: Callable[[], None]) -> ConnectionSession:
        config = self._record.config
        extensions = [AdaptedExtension(each) for each in config.extensions]
        info, declared = self._record.server.client_info or OWN_CLIENT, self._record.next_connect.declared
        dispatcher = LinkDispatcher(link, config.name, self._record.describe, join_handler)
        return ConnectionSession(dispatcher, info, callbacks, extensions, declared)

    async def agree(self, session: ConnectionSession, limits: ConnectLimits, tasks: Background) -> None:
        """Agree on an era and adopt it.

        Raises:
            mcp.MCPError, ServerError, ConnectionOver, ValidationError, NoCommonVersion, RuntimeError: no agreement.
        """
        if self._era == ASK:
            await (self._ask_both(session, limits, tasks) if session.link.pid is not None else self._ask(session))
        elif self._era.mode == "legacy":
            await self._shake_hands_or_discover(session)
        else:
            session.adopt(self._era.discovered or await session.discover(self._era.mode))
        if self._era.discovered is None:
            limits.answered()
        if self._unanswered:
            logger.warning(
                "server %r: answered initialize but not server/discover, and is used as a legacy server until it "
                "reconnects; set protocol='legacy' if it is one",
                self._record.config.name,
            )

    async def _shake_hands_or_discover(self, session: ConnectionSession) -> None:
        """Begin a session. If refused, and the era is neither configured nor a `QUIRK`, try ``server/discover``."""
        try:
            initialized = await session.initialize()
        except MCPError as refusal:
            if self._era != LEGACY or self._record.config.protocol != "auto" or session.link.lifeline.lost:
                raise
            try:
                session.adopt(await session.discover())
            except (MCPError, ValidationError, RuntimeError):
                raise refusal from None
        else:
            await self._shake_hands(session, initialized)

    async def _shake_hands(self, session: ConnectionSession, result: InitializeResult) -> None:
        if result.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS:
            raise NoCommonVersion(result.protocol_version)
        session.adopt(result)
        await session.notify(INITIALIZED)

    async def _ask(self, session: ConnectionSession) -> None:
        """Send ``server/discover``, then ``initialize`` unless the answer names a modern version.

        ``initialize`` also follows an error, and a missing answer (`DISCOVER_TIMEOUT`). If an error lists a modern
        version of this client, ``server/discover`` is repeated with the version. If an error lists only versions
        without a handshake, the connect fails. A failure of the transport says nothing about the era, and ends the
        connect.
        """
        version = LATEST_MODERN_VERSION
        for again in (True, False):
            refusal = None
            try:
                with trio.move_on_after(DISCOVER_TIMEOUT) as waiting:
                    discovered = await session.discover(version)
                    if any(map(is_modern, discovered.supported_versions)):
                        session.adopt(discovered)
                        return
                self._unanswered = waiting.cancelled_caught
            except ValidationError:
                pass
            except (MCPError, HttpStatusError) as exc:
                refusal = exc
                if again and (common := _common_version(exc)) is not None:
                    version = common
                    continue
                if session.link.lifeline.lost or _no_common_version(exc):
                    raise
            try:
                await self._shake_hands(session, await session.initialize())
            except MCPError as exc:
                # The server was slow to start, and `server/discover` has made it modern meanwhile.
                if not again or (common := _common_version(exc)) is None:
                    raise exc from refusal
                version, self._unanswered = common, False
                continue
            return

    async def _ask_both(self, session: ConnectionSession, limits: ConnectLimits, tasks: Background) -> None:
        """Send a process both requests; adopt the first usable result."""
        answers, name = EraAnswers(), self._record.config.name
        # These tasks live as long as the connection, so a late answer still finds its request and is dropped. A shorter
        # scope would cancel a request on the wire, which the protocol forbids for `initialize`.
        tasks.start_soon(answers.take_discover, session, name=f"{name}:server/discover")
        tasks.start_soon(self._wait_for_answer, answers, limits, name=f"{name}:probe")
        # No checkpoint between `outcome()` and `wait_change()`: an answer in between would be missed, and nothing else
        # wakes this task.
        while (outcome := answers.outcome()) is None:
            if answers.initialize_is_due and not self._asked_both:
                self._asked_both = True
                tasks.start_soon(answers.take_initialize, session, name=f"{name}:initialize")
                limits.watch_reading(session.link)
            await answers.wait_change()
        if isinstance(outcome, Exception):
            raise outcome
        if isinstance(outcome, InitializeResult):
            self._unanswered = answers.discover is None
            await self._shake_hands(session, outcome)
        else:
            session.adopt(outcome)

    async def _wait_for_answer(self, answers: EraAnswers, limits: ConnectLimits) -> None:
        """Permit ``initialize`` after a tenth of ``connect_timeout``: servers answer in milliseconds or never."""
        await limits.read.wait()
        await trio.sleep(0.1 * (self._record.config.connect_timeout or UNBOUNDED))
        answers.permit()

    def switches_to_legacy(self, link: Link | None, exc: Exception) -> bool:
        """Return True, after switching to the legacy era, if ``server/discover`` made a process exit or hang."""
        if self._era != ASK or link is None or link.pid is None:
            return False
        silent = isinstance(exc, TimedOut) and exc.read is True and self._asked_both
        if not silent and not _exited_after_discover(link):
            return False
        logger.log(
            self._record.life.level_of_attempt,
            "server %r: its process %s server/discover; restarting it as a legacy server; set "
            "protocol='legacy' to avoid the first start",
            self._record.config.name,
            "did not respond after" if silent else "exited after",
        )
        self._era, self._hurried = QUIRK, silent
        return True

    def succeeded(self, session: ConnectionSession) -> None:
        """Remember the server's era; forget it if only ``initialize`` was answered."""
        if self._record.config.protocol == "auto":
            discovered = session.agreed if isinstance(session.agreed, DiscoverResult) else None
            era = era_of(discovered, session.version, session.listener.server_info, self._era)
            self._record.next_connect.era = None if self._unanswered else era

    def failed(self, error: BaseException | None) -> None:
        """Remember or forget the era after a failed connect. An `error` of None means a timeout."""
        self._record.next_connect.legacy_first &= error is not None  # a timeout: perhaps ``initialize`` is ignored
        if self._record.config.protocol == "auto":
            answered = isinstance(error, MCPError) and error.code == UNSUPPORTED_PROTOCOL_VERSION
            self._record.next_connect.era = era_after_failure(self._era, remembered=self._remembered, answered=answered)


@define(eq=False)
class EraAnswers:
    """The answers of a process to the two requests: a result, an error, or None before."""

    discover: DiscoverResult | Exception | None = None
    initialize: InitializeResult | Exception | None = None
    _permitted: bool = False
    _changed: trio.Event = field(factory=trio.Event)

    @property
    def initialize_is_due(self) -> bool:
        """True once ``server/discover`` was answered, or has taken too long."""
        return self._permitted or self.discover is not None

    def outcome(self) -> DiscoverResult | InitializeResult | Exception | None:
        """Return the result to adopt, or the error; None while undecided.

        If both answers came in the same step, the modern era wins.
        """
        if isinstance(self.discover, DiscoverResult) and any(map(is_modern, self.discover.supported_versions)):
            return self.discover
        if isinstance(self.discover, Exception) and _no_common_version(self.discover):
            return self.discover
        if isinstance(self.initialize, InitializeResult) or self.discover is not None:
            return self.initialize
        # A modern server may refuse `initialize` before answering `server/discover`, so an error decides nothing yet.
        return None

    async def take_discover(self, session: ConnectionSession) -> None:
        try:
            self.discover = await session.discover()
        except (MCPError, ValidationError) as exc:
            self.discover = exc
        self._note_change()

    async def take_initialize(self, session: ConnectionSession) -> None:
        try:
            self.initialize = await session.initialize()
        except (MCPError, ValidationError) as exc:
            self.initialize = exc
        self._note_change()

    def permit(self) -> None:
        self._permitted = True
        self._note_change()

    async def wait_change(self) -> None:
        await self._changed.wait()

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


def _common_version(error: Exception) -> str | None:
    """Return the newest modern version of this client that the error lists, if any."""
    offered = offered_versions(error) or ()
    return next((each for each in reversed(MODERN_PROTOCOL_VERSIONS) if each in offered), None)


def _no_common_version(error: Exception) -> bool:
    """Return True if the error lists only versions that ``initialize`` cannot negotiate."""
    offered = offered_versions(error)
    return offered is not None and not any(each in HANDSHAKE_PROTOCOL_VERSIONS for each in offered)


def _exited_after_discover(link: Link) -> bool:
    """Return True if ``server/discover`` made a process exit; False if unread, or if the process was killed.

    Some servers exit at ``server/discover``, and those of the Python SDK before 1.9 at the next message.
    """
    heard = link.heard is not False  # unless reported otherwise, assume that the request was read
    killed = (-signal.SIGKILL, -signal.SIGTERM)  # by an operator, or for lack of memory
    return link.lifeline.lost and link.lifeline.failure is None and heard and link.obituary().exit_code not in killed


# --- Bound one attempt to connect, and the waiting for it -------------------------------------------------------------

# Without a child process, ``connect_timeout`` bounds everything. A process has ``startup_timeout`` from its start, and
# ``connect_timeout`` from reading its input; silence is a failure only once both have expired, because a relay
# (``docker run -i``, ``ssh``) may read for a server that has not started yet. After the first answer only
# ``connect_timeout`` counts.
#
# Callers wait at most ``connect_timeout`` for an optional server. Then the server is *overdue*: it keeps connecting,
# the program continues without it, and another server may begin to connect.


INPUT_POLL: Final = 0.1
"""Seconds between checks of whether a process has read its input: the system has no event."""


class ConnectLimits:
    """The time of one attempt to connect.

    Attributes:
        scope: the scope around the attempt; its deadline ends the attempt.
        read: set when a process has read the first message; at once if the system does not report reading.

    Args:
        began: when the whole connect began.
        hurried: True if an earlier process has used up its time-outs, so this process is not taken for a relay.
    """

    def __init__(self, config: ServerConfig, life: ConnectionLife, *, began: float, hurried: bool, turn: Turn) -> None:
        self._config = config
        self._life = life
        self._connect = config.connect_timeout or math.inf
        self._startup = config.startup_timeout or math.inf
        self._overdue_at = began + self._connect
        self._hurried = hurried
        self._turn = turn
        self._limit: Limit = "connect_timeout"
        self._link: Link | None = None
        self._started = math.inf
        self._answered = False
        self._watchers: Background
        self._has_read: bool | None = None
        self.read = trio.Event()
        self.scope = trio.CancelScope(deadline=trio.current_time() + self._connect)

    @asynccontextmanager
    async def follow(self, link: Link) -> AsyncIterator[None]:
        """Give a process ``startup_timeout`` from its start, until its input is read."""
        if link.pid is None:
            yield
            return
        self._link, self._started = link, trio.current_time()
        self.scope.deadline, self._limit = self._started + self._startup, "startup_timeout"
        name = self._config.name
        self._life.note_connecting(link)
        async with open_background() as self._watchers:
            self._watchers.start_soon(self._note_overdue, link, name=f"{name}:overdue")
            self._watchers.start_soon(self._watch_exit, link, name=f"{name}:exited")
            self.watch_reading(link)
            yield

    def watch_reading(self, link: Link) -> None:
        """Give a process at least ``connect_timeout`` after reading all its input.

        If the system does not report reading, ``startup_timeout`` bounds the whole attempt.
        """
        self._watchers.start_soon(self._watch_reading, link, name=f"{self._config.name}:startup")

    async def _watch_reading(self, link: Link) -> None:
        self._has_read = False
        # A message sent in this step enters the pipe later, so an empty pipe proves nothing yet.
        await trio.sleep(INPUT_POLL)
        while link.heard is False:  # noqa: ASYNC110 - there is no event, see INPUT_POLL
            await trio.sleep(INPUT_POLL)
        self._has_read = link.heard
        self.read.set()
        deadline = trio.current_time() + self._connect
        if link.heard and not self._answered and (self._hurried or deadline > self._started + self._startup):
            self.scope.deadline, self._limit = deadline, "connect_timeout"

    async def _watch_exit(self, link: Link) -> None:
        """Give up an exited process once no child can be the server, because none reads stdin.

        An open stdout proves nothing: a leftover helper may hold it forever.

        Raises:
            anyio.EndOfStream: no process is left to answer.
        """
        exited = trio.Event()
        link.lifeline.on_exit = exited.set
        if not link.lifeline.exited:
            await exited.wait()
        # A wrapper may leave the real server running, and the last output may be unread. So poll until stdout has ended
        # (`lost`: reading raises its own error) or every reader of stdin is gone. Raise with a complete obituary:
        # the error quotes the exit code and stderr.
        closed = False
        while not closed:
            await trio.sleep(INPUT_POLL)
            if link.lifeline.lost:
                return
            closed = link.input_closed
        link.lifeline.lose()
        await link.wait_obituary()
        raise anyio.EndOfStream

    async def _note_overdue(self, link: Link) -> None:
        await trio.sleep_until(self._overdue_at)
        if self.scope.deadline <= (close := self._overdue_at + self._config.stop_timeout):
            await trio.sleep_until(close)  # about to fail: callers get that error, not "still connecting"
        if not self._answered:
            self._turn.end()  # or a few slow servers would block all others
            self._life.note_overdue(still_connecting(self._config.name, self._connect, link))

    def answered(self) -> None:
        """Note the server's first answer; ``connect_timeout`` bounds the rest."""
        if self._link is not None and not self._answered:
            self._answered = True
            self.scope.deadline, self._limit = trio.current_time() + self._connect, "connect_timeout"

    def connected(self) -> None:
        self._turn.end()
        self.scope.deadline = math.inf
        if self._link is not None:
            self._watchers.cancel("the server is connected")

    def over(self) -> TimedOut:
        if self._limit == "connect_timeout" or self._startup == self._connect:
            return TimedOut("connect_timeout", self._connect, self._has_read)
        return TimedOut("startup_timeout", self._startup, self._has_read)
