"""Negotiate the protocol era with a server, in limited time.

`Negotiation`, one for each connect of the actor, makes the session and agrees on an era; `Answers` are those of a
process to the two requests. `Patience`, the second part, bounds an attempt to connect and the wait of callers for it;
`open_patience` first waits for the turn to connect, in the `Capacity` of the group.

It sends its requests by the session, and introduces this client (`OURS`, by the metadata of the package). It starts its
tasks where the actor says; those that watch the start of a process are in a background of their own. It writes into the
record the era that the next connect begins with, the link of a process that connects, and that a connect is overdue. It
ends the turn when the server is connected or a process is overdue. It may mark a link as lost whose process has exited.
It logs the fall-back to the legacy era, and uses no mailbox and no request of a caller.

Theory of operation
-------------------
A process is sent ``server/discover``. If it has read that and does not answer for a while, it is sent ``initialize`` as
well, on the same connection; at once if ``server/discover`` fails or lists no modern version. But an error that lists
only versions without a handshake ends the negotiation. The first usable result decides; a later one stays in `Answers`,
unused. Silence does not end a process before its time-outs have expired (`Patience`): the process or its machine may be
slow, or it may be a relay for a server that has not started yet.

A process is started once more, as a legacy server, if ``server/discover`` made it exit. Some servers do not survive
that request, and servers made with the Python SDK before 1.9 exit at the message that follows it. The same is done if a
process has read both requests and stays silent until its time-outs have expired.

A gateway begins with ``initialize`` for a server that may ask its client (`Opening.legacy_first`). If that is refused,
as by a server whose remembered era is over, ``server/discover`` follows.

Over HTTP and for in-process servers the requests follow each other: `initialize` is sent if ``server/discover`` was
answered with an error or without a modern version, or not in time. If the error lists a modern version that this client
has, ``server/discover`` is sent once more instead; if it lists only versions without a handshake, the connect fails. A
failure of the transport says nothing about the era and ends the connect.
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
    check_handshake_version,
    era_after_failure,
    era_of,
    first_era,
    is_modern,
    offered_versions,
)
from .._failures import TimedOut, still_connecting
from .._session import Session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from ..._tasks import Background
    from ...config import ServerConfig
    from ...transports import Link, Turn
    from .._failures import Limit
    from .._session import Callbacks
    from ..record import ConnectionLife, ConnectionRecord


logger = Log("mcp_actors.servers")


OURS: Final = Implementation(name="mcp_actors", version=version("mcp-actors"))
"""How this client introduces itself to servers, unless it is configured (``client_info``)."""

ANSWER_SHARE: Final = 1 / 10
"""Part of ``connect_timeout`` that a process has for its answer to ``server/discover``, from having read it until it is
sent ``initialize`` too: 3 s of the default 30. Servers answer in milliseconds or never."""

UNBOUNDED: Final = 30.0
"""Used instead of ``connect_timeout`` to compute the delay before ``initialize`` if that is None."""

KILLED: Final = (-signal.SIGKILL, -signal.SIGTERM)
"""Exit codes of a process that was killed from outside: by an operator, or because memory ran out."""

DISCOVER_TIMEOUT: Final = 10.0
"""Seconds for the answer to ``server/discover`` of a server that is not a process, as in the SDK."""


class Negotiation:
    """The eras that one connect tries; records the one that the next connect begins with."""

    def __init__(self, record: ConnectionRecord) -> None:
        self._record = record
        self._remembered = record.opening.era
        begins_legacy = record.opening.legacy_first and record.config.protocol == "auto"
        self._era = record.opening.era or (LEGACY if begins_legacy else first_era(record.config))
        self._began = trio.current_time()
        self._asked_both = False
        self._hurried = False
        self._unanswered = False

    def patience(self) -> AbstractAsyncContextManager[Patience]:
        """Bound the attempt that is about to begin."""
        self._asked_both = False
        return open_patience(self._record, began=self._began, hurried=self._hurried)

    def session(self, link: Link, callbacks: Callbacks, join_handler: Callable[[], None]) -> Session:
        """Return the session for this link."""
        config = self._record.config
        extensions = [AdaptedExtension(each) for each in config.extensions]
        info, declared = self._record.server.client_info or OURS, self._record.opening.declared
        dispatcher = LinkDispatcher(link, config.name, self._record.describe, join_handler)
        return Session(dispatcher, info, callbacks, extensions, declared)

    async def agree(self, session: Session, patience: Patience, tasks: Background) -> None:
        """Agree on an era and adopt it.

        Raises:
            mcp.MCPError, ServerError, ConnectionOver, ValidationError, NoCommonVersion, RuntimeError: it failed.
        """
        if self._era == ASK:
            await (self._ask_both(session, patience, tasks) if session.link.pid is not None else self._ask(session))
        elif self._era.mode == "legacy":
            await self._shake_hands_or_discover(session)
        else:
            session.adopt(self._era.discovered or await session.discover(self._era.mode))
        if self._era.discovered is None:
            patience.answered()
        if self._unanswered:
            logger.warning(
                "server %r: answered initialize but not server/discover, and is used as a legacy server until it "
                "reconnects; set protocol='legacy' if it is one",
                self._record.config.name,
            )

    async def _shake_hands_or_discover(self, session: Session) -> None:
        """Begin a session; if the server refuses ``initialize`` and the era was not configured, ask for its version."""
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

    async def _shake_hands(self, session: Session, result: InitializeResult) -> None:
        check_handshake_version(result.protocol_version)
        session.adopt(result)
        await session.notify(INITIALIZED)

    async def _ask(self, session: Session) -> None:
        """Send ``server/discover``; ``initialize`` if the server does not know it, or does not answer in time."""
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
                # The server was slow to start, and has become a modern one by `server/discover` meanwhile.
                if not again or (common := _common_version(exc)) is None:
                    raise exc from refusal
                version, self._unanswered = common, False
                continue
            return

    async def _ask_both(self, session: Session, patience: Patience, tasks: Background) -> None:
        """Send ``server/discover`` to a process, later ``initialize`` too; adopt the first usable result."""
        answers, name = Answers(), self._record.config.name
        # These tasks live as long as the connection: a late answer then still finds its request and is dropped. A
        # shorter scope would cancel a request on the wire, which the protocol forbids for `initialize`.
        tasks.start_soon(answers.take_discover, session, name=f"{name}:server/discover")
        tasks.start_soon(self._wait_for_answer, answers, patience, name=f"{name}:probe")
        # No checkpoint between `outcome()` and `wait_change()`: an answer in between would be missed, and nothing else
        # wakes this task.
        while (outcome := answers.outcome()) is None:
            if answers.initialize_is_due and not self._asked_both:
                self._asked_both = True
                tasks.start_soon(answers.take_initialize, session, name=f"{name}:initialize")
                patience.watch_reading(session.link)
            await answers.wait_change()
        if isinstance(outcome, Exception):
            raise outcome
        if isinstance(outcome, InitializeResult):
            self._unanswered = answers.discover is None
            await self._shake_hands(session, outcome)
        else:
            session.adopt(outcome)

    async def _wait_for_answer(self, answers: Answers, patience: Patience) -> None:
        await patience.read.wait()
        await trio.sleep(ANSWER_SHARE * (self._record.config.connect_timeout or UNBOUNDED))
        answers.permit()

    def begins_anew(self, link: Link | None, exc: Exception) -> bool:
        """Switch to the legacy era and return True if ``server/discover`` made a process exit or hang."""
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

    def succeeded(self, session: Session) -> None:
        """Remember the era of the server; forget it if only ``initialize`` was answered."""
        if self._record.config.protocol == "auto":
            era = era_of(session.discovered, session.version, session.identity, self._era)
            self._record.opening.era = None if self._unanswered else era

    def failed(self, error: BaseException | None) -> None:
        """Remember or forget the era after a failed connect. Without an `error`, the connect has timed out."""
        self._record.opening.legacy_first &= error is not None  # else it may not answer ``initialize`` at all
        if self._record.config.protocol == "auto":
            answered = isinstance(error, MCPError) and error.code == UNSUPPORTED_PROTOCOL_VERSION
            self._record.opening.era = era_after_failure(self._era, remembered=self._remembered, answered=answered)


@define(eq=False)
class Answers:
    """The answers of a process to the two requests that negotiate its era.

    Attributes:
        discover: its answer to ``server/discover``: a result, or the error; None before that.
        initialize: its answer to ``initialize``, likewise.
    """

    discover: DiscoverResult | Exception | None = None
    initialize: InitializeResult | Exception | None = None
    _permitted: bool = False
    _changed: trio.Event = field(factory=trio.Event)

    @property
    def initialize_is_due(self) -> bool:
        """Return True once ``initialize`` may be sent: ``server/discover`` was answered, or its time is over."""
        return self._permitted or self.discover is not None

    def outcome(self) -> DiscoverResult | InitializeResult | Exception | None:
        """Return the result to adopt, or the error of the negotiation; None while neither is certain.

        The modern era wins if both answers came in the same step.
        """
        if isinstance(self.discover, DiscoverResult) and any(map(is_modern, self.discover.supported_versions)):
            return self.discover
        if isinstance(self.discover, Exception) and _no_common_version(self.discover):
            return self.discover
        if isinstance(self.initialize, InitializeResult) or self.discover is not None:
            return self.initialize
        # A modern server may refuse `initialize` before it answers `server/discover`, so an error decides nothing yet.
        return None

    async def take_discover(self, session: Session) -> None:
        """Send ``server/discover`` and store the answer."""
        try:
            self.discover = await session.discover()
        except (MCPError, ValidationError) as exc:
            self.discover = exc
        self._note_change()

    async def take_initialize(self, session: Session) -> None:
        """Send ``initialize`` and store the answer."""
        try:
            self.initialize = await session.initialize()
        except (MCPError, ValidationError) as exc:
            self.initialize = exc
        self._note_change()

    def permit(self) -> None:
        """Allow ``initialize`` to be sent."""
        self._permitted = True
        self._note_change()

    async def wait_change(self) -> None:
        """Wait for the next answer or permission."""
        await self._changed.wait()

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


def _common_version(error: Exception) -> str | None:
    """Return the newest modern version that the error lists as one of the server, and this client has too."""
    offered = offered_versions(error) or ()
    return next((each for each in reversed(MODERN_PROTOCOL_VERSIONS) if each in offered), None)


def _no_common_version(error: Exception) -> bool:
    """Return True if the error lists the versions of the server, and ``initialize`` cannot negotiate any of them."""
    offered = offered_versions(error)
    return offered is not None and not any(each in HANDSHAKE_PROTOCOL_VERSIONS for each in offered)


def _exited_after_discover(link: Link) -> bool:
    """Return True if ``server/discover`` made a process exit.

    False if it exited before it read the request, or was killed.
    """
    heard = link.heard is not False  # if the system does not report it, the request may have been read
    return link.lifeline.lost and link.lifeline.failure is None and heard and link.obituary().exit_code not in KILLED


# --- Bound one attempt to connect, and the waiting for it -------------------------------------------------------------

# A connection without a child process has ``connect_timeout`` for everything. A process has ``startup_timeout`` from
# its start, and ``connect_timeout`` from the moment it has read its input. Silence counts as a failure only when both
# have expired, because the reader may be a relay (``docker run -i``, ``ssh``) for a server that has not started yet.
# After the first answer ``connect_timeout`` counts alone.
#
# Callers wait for an optional server for at most ``connect_timeout``. After that the server is *overdue*: it goes on
# connecting, and the program goes on without it. Its turn is over too: another server may begin to connect.


LOOK_EVERY: Final = 0.1
"""Seconds between two checks whether a process has read its input. The system has no event for that."""


class Patience:
    """The time of one attempt to connect.

    Attributes:
        scope: the scope around the attempt; its deadline is when the attempt is over.
        read: set when a process has read the first message; at once if the system does not report that.

    Args:
        config: the configuration of the server.
        life: the state of the server.
        began: the time at which the whole connect began.
        hurried: True if an earlier process has used up its time-outs, so this one is not taken for a relay.
        turn: its turn to connect.
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
        """Give a process ``startup_timeout`` from its start, until it has read its input."""
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
        """Give a process at least ``connect_timeout`` from the moment it has read all its input.

        If the system does not report that, ``startup_timeout`` bounds the whole attempt.
        """
        self._watchers.start_soon(self._watch_reading, link, name=f"{self._config.name}:startup")

    async def _watch_reading(self, link: Link) -> None:
        self._has_read = False
        # A message that is sent in this step is in the pipe only after this. An empty pipe now would prove nothing.
        await trio.sleep(LOOK_EVERY)
        while link.heard is False:  # noqa: ASYNC110 - there is no event, see LOOK_EVERY
            await trio.sleep(LOOK_EVERY)
        self._has_read = link.heard
        self.read.set()
        deadline = trio.current_time() + self._connect
        if link.heard and not self._answered and (self._hurried or deadline > self._started + self._startup):
            self.scope.deadline, self._limit = deadline, "connect_timeout"

    async def _watch_exit(self, link: Link) -> None:
        """Give up a process that has exited when no child of it can be the server.

        A helper that it has left behind may hold its stdout open, so that this does not end. But a server has to read.

        Raises:
            anyio.EndOfStream: no process is left that could answer.
        """
        exited = trio.Event()
        link.lifeline.on_exit = exited.set
        if not link.lifeline.exited:
            await exited.wait()
        closed = False
        while not closed:
            await trio.sleep(LOOK_EVERY)  # meanwhile the end of its stdout is read, unless there is such a helper
            if link.lifeline.lost:
                return
            closed = link.input_closed
        link.lifeline.lose()
        await link.wait_obituary()
        raise anyio.EndOfStream

    async def _note_overdue(self, link: Link) -> None:
        await trio.sleep_until(self._overdue_at)
        if self.scope.deadline <= (close := self._overdue_at + self._config.stop_timeout):
            await trio.sleep_until(close)  # the attempt is about to fail: callers get its error, not "still connecting"
        if not self._answered:
            self._turn.end()  # or a few slow servers would keep all others from connecting
            self._life.note_overdue(still_connecting(self._config.name, self._connect, link))

    def answered(self) -> None:
        """Note the first answer of the server; the rest of the attempt has ``connect_timeout``."""
        if self._link is not None and not self._answered:
            self._answered = True
            self.scope.deadline, self._limit = trio.current_time() + self._connect, "connect_timeout"

    def connected(self) -> None:
        """Lift the deadline, and stop watching the process: the server is connected."""
        self._turn.end()
        self.scope.deadline = math.inf
        if self._link is not None:
            self._watchers.cancel("the server is connected")

    def over(self) -> TimedOut:
        """Return the error of an attempt that timed out."""
        if self._limit == "connect_timeout" or self._startup == self._connect:
            return TimedOut("connect_timeout", self._connect, self._has_read)
        return TimedOut("startup_timeout", self._startup, self._has_read)


@asynccontextmanager
async def open_patience(record: ConnectionRecord, *, began: float, hurried: bool) -> AsyncIterator[Patience]:
    """Wait for the turn of a server to connect, and bound its attempt until `Patience.connected` is called.

    Raises:
        TimedOut: the attempt took too long.
    """
    config, life = record.config, record.life

    def late(why: str) -> None:
        life.note_overdue(f"server {config.name!r}: {why}")

    until = began + (config.connect_timeout or math.inf)
    async with record.server.capacity.turn(record.server.place, until, late) as turn:
        patience = Patience(config, life, began=began, hurried=hurried, turn=turn)
        with patience.scope:
            yield patience
    if patience.scope.cancelled_caught:
        raise patience.over()
