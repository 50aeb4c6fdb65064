"""Find out which protocol era a server speaks, however slow it is to start.

A process is asked ``server/discover``. When it has read that and has not answered for a while, it is sent
``initialize`` as well, on the same connection, and the first answer decides; the session drops the other one. To have
read the question never ends a process: it may be slow, its machine may be, or it may be a relay for a server that is
not there yet.

A process is started once more, in legacy, when the question was its end; some servers do not survive it, and servers
made with the Python SDK before 1.9 end with the next message that follows it. So it is when it stays silent until all
its time is over (``_patience``).

The SDK negotiates by itself over HTTP and within this process. Not here: it drops an answer that comes after 10 s.
"""

from __future__ import annotations

import logging
import signal
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import trio
from attrs import define, field
from mcp import Client, MCPError
from mcp.client.session import DISCOVER_TIMEOUT_SECONDS
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.types import (
    UNSUPPORTED_PROTOCOL_VERSION,
    ClientCapabilities,
    DiscoverRequest,
    DiscoverResult,
    ElicitationCapability,
    FormElicitationCapability,
    Implementation,
    InitializedNotification,
    InitializeRequest,
    InitializeRequestParams,
    InitializeResult,
    RootsCapability,
    SamplingCapability,
    ServerCapabilities,
    UrlElicitationCapability,
)
from mcp.types.version import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    LATEST_MODERN_VERSION,
)
from pydantic_core import ValidationError

from ._era import ASK, QUIRK, era_after_failure, era_of, first_era
from ._input_required import MAX_ROUNDS
from ._patience import TimedOut, open_patience
from ._versions import check_handshake_version, is_modern, offered_versions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager

    from mcp import ClientSession

    from ._background import Background
    from ._incoming import ClientCallbacks
    from ._patience import Patience
    from ._record import ServerRecord
    from .transports import Link

__all__ = ["Negotiation"]

logger = logging.getLogger("mcp_actors.servers")

# It receives for a session. A Ctrl-C in the middle of a message would be lost with that; the main task gets it instead.
trio.lowlevel.enable_ki_protection(JSONRPCDispatcher.run)

CLIENT: Final = Implementation(name="mcp_actors", version=version("mcp-actors"))
"""What servers are told about who connects."""

ANSWER_SHARE: Final = 1 / 10
"""Part of ``connect_timeout`` that a process has to answer once it has read the question, before it is sent
``initialize`` too: 3 s of the default 30. Servers answer in milliseconds, but for those that never do."""

UNBOUNDED: Final = 30.0
"""Seconds of which this part is taken if there is no ``connect_timeout``."""

KILLED: Final = (-signal.SIGKILL, -signal.SIGTERM)
"""Exit codes of processes that somebody else has ended: an operator, or a machine that is short of memory."""

_AS_LEGACY: Final = InitializeResult(
    protocol_version=LATEST_HANDSHAKE_VERSION,
    capabilities=ServerCapabilities(),
    server_info=Implementation(name="", version=""),
)
"""Has a session write requests as a legacy one does, until it is known better."""


class Negotiation:
    """The eras that one connect tries; it also leaves in the record what the next one is to begin with."""

    def __init__(self, record: ServerRecord) -> None:
        self._record = record
        self._remembered = record.era
        self._era = record.era or first_era(record.config)
        self._began = self._asked = trio.current_time()
        self._asked_both = False
        self._hurried = False
        self._unanswered = False

    def patience(self) -> AbstractContextManager[Patience]:
        """Bound the attempt that is about to begin."""
        self._asked_both = False
        return open_patience(self._record, began=self._began, hurried=self._hurried)

    def client(self, link: Link, callbacks: ClientCallbacks) -> Client:
        """Return the client for this link. Entering it negotiates, or leaves that to `agree`."""
        era, self._asked = self._era, trio.current_time()
        return Client(
            link.target,
            mode=LATEST_MODERN_VERSION if self._asks(link) else era.mode,
            prior_discover=era.discovered,
            client_info=CLIENT,
            input_required_max_rounds=MAX_ROUNDS,
            extensions=self._record.config.extensions,
            **callbacks,
        )

    def _asks(self, link: Link) -> bool:
        return self._era == ASK and link.pid is not None

    async def agree(self, client: Client, link: Link, patience: Patience, tasks: Background) -> None:
        """Do what the client has left to be done until both sides know what they speak.

        Raises:
            mcp.MCPError, ValidationError, NoCommonVersion, RuntimeError: they do not come to speak the same.
        """
        session = client.session
        if self._asks(link):
            await self._ask_both(client, link, patience, tasks)
        elif self._era.mode not in ("auto", "legacy") and self._era.discovered is None:
            session.adopt(await _discover(session))
        elif self._era == ASK and session.discover_result is None:
            self._unanswered = trio.current_time() - self._asked >= DISCOVER_TIMEOUT_SECONDS
        if self._era.discovered is None:
            patience.answered()
        if self._unanswered:
            logger.warning(
                "server %r: has not answered server/discover, but initialize; it is spoken to as a legacy server until "
                "it is connected again. If it is one, set protocol='legacy'",
                self._record.config.name,
            )

    async def _ask_both(self, client: Client, link: Link, patience: Patience, tasks: Background) -> None:
        """Ask a process ``server/discover``, and after a while ``initialize``; adopt what it answers first."""
        session, answers, name = client.session, Answers(), self._record.config.name
        # These tasks live as long as the connection, so that a late answer finds its request and is dropped. To cancel
        # one of the two requests is not allowed.
        tasks.start_soon(answers.take_discover, _discover, session, name=f"{name}:server/discover")
        tasks.start_soon(self._wait_for_answer, answers, patience, name=f"{name}:probe")
        while (outcome := answers.outcome()) is None:
            if answers.initialize_is_due and not self._asked_both:
                self._asked_both = True
                session.adopt(_AS_LEGACY)
                tasks.start_soon(answers.take_initialize, _initialize, client, name=f"{name}:initialize")
                tasks.start_soon(patience.watch_reading, link, name=f"{name}:startup")
            await answers.wait_change()
        if isinstance(outcome, Exception):
            raise outcome
        if isinstance(outcome, InitializeResult):
            check_handshake_version(outcome.protocol_version)
        session.adopt(outcome)
        if isinstance(outcome, InitializeResult):
            self._unanswered = answers.discover is None
            await session.send_notification(InitializedNotification())

    async def _wait_for_answer(self, answers: Answers, patience: Patience) -> None:
        await patience.read.wait()
        await trio.sleep(ANSWER_SHARE * (self._record.config.connect_timeout or UNBOUNDED))
        answers.permit()

    def begins_anew(self, link: Link | None, exc: Exception) -> bool:
        """Whether the question was the end of a process, so that it has to be started once more; now in legacy."""
        if self._era != ASK or link is None or link.pid is None:
            return False
        silent = isinstance(exc, TimedOut) and exc.read is True and self._asked_both
        if not silent and not _ended_at_the_question(link):
            return False
        logger.log(
            self._record.level_of_attempt,
            "server %r: its process %s server/discover; it is started once more, and spoken to as a legacy server. "
            "Set protocol='legacy' to save the first start",
            self._record.config.name,
            "does not answer anything after" if silent else "ended at",
        )
        self._era, self._hurried = QUIRK, silent
        return True

    def succeeded(self, client: Client) -> None:
        """Remember what the server speaks."""
        if self._record.config.protocol == "auto":
            self._record.era = None if self._unanswered else era_of(client, self._era)

    def failed(self, error: BaseException | None) -> None:
        """Take into account what the connect failed with; None if it took too long."""
        if self._record.config.protocol == "auto":
            answered = isinstance(error, MCPError) and error.code == UNSUPPORTED_PROTOCOL_VERSION
            self._record.era = era_after_failure(self._era, remembered=self._remembered, answered=answered)


@define(eq=False)
class Answers:
    """What a process has said so far to the two questions for its era.

    Attributes:
        discover: what it answered to ``server/discover``: a result, or why there is none.
        initialize: likewise.
    """

    discover: DiscoverResult | Exception | None = None
    initialize: InitializeResult | Exception | None = None
    _permitted: bool = False
    _changed: trio.Event = field(factory=trio.Event)

    @property
    def initialize_is_due(self) -> bool:
        """Whether it may be sent ``initialize``: it has refused the other question, or had its time to answer it."""
        return self._permitted or self.discover is not None

    def outcome(self) -> DiscoverResult | InitializeResult | Exception | None:
        """Return what its answers come to: what to adopt, or why nothing can be; None while that is open.

        If both came in the same moment, the modern era is preferred.
        """
        if isinstance(self.discover, DiscoverResult) and is_modern(self.discover.supported_versions):
            return self.discover
        if isinstance(self.discover, Exception) and _leaves_nothing(self.discover):
            return self.discover
        if isinstance(self.initialize, InitializeResult) or self.discover is not None:
            return self.initialize
        # A modern server may refuse `initialize` before it answers the other question.
        return None

    async def take_discover(
        self, ask: Callable[[ClientSession], Awaitable[DiscoverResult]], session: ClientSession
    ) -> None:
        """Ask, and note the answer."""
        try:
            self.discover = await ask(session)
        except (MCPError, ValidationError) as exc:
            self.discover = exc
        self._note_change()

    async def take_initialize(self, ask: Callable[[Client], Awaitable[InitializeResult]], client: Client) -> None:
        """Ask, and note the answer."""
        try:
            self.initialize = await ask(client)
        except (MCPError, ValidationError) as exc:
            self.initialize = exc
        self._note_change()

    def permit(self) -> None:
        """It may be sent ``initialize`` from now on."""
        self._permitted = True
        self._note_change()

    async def wait_change(self) -> None:
        """Wait until something of this changes."""
        await self._changed.wait()

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


async def _discover(session: ClientSession) -> DiscoverResult:
    """Ask what a server can do. Without the time-out of the SDK's own function for that, which drops a late answer."""
    return await session.send_request(DiscoverRequest(), DiscoverResult)


async def _initialize(client: Client) -> InitializeResult:
    """Begin a legacy session, as the SDK's own function does, which would adopt the answer at once."""
    params = InitializeRequestParams(
        protocol_version=LATEST_HANDSHAKE_VERSION, capabilities=_capabilities(client), client_info=CLIENT
    )
    return await client.session.send_request(InitializeRequest(params=params), InitializeResult)


def _capabilities(client: Client) -> ClientCapabilities:
    """Return what a client can do in a legacy session; extensions with results of their own are of the modern era."""
    extensions: dict[str, Any] = {
        each.identifier: each.settings() for each in client.extensions or () if not tuple(each.claims())
    }
    form, url = FormElicitationCapability(), UrlElicitationCapability()
    return ClientCapabilities(
        sampling=(client.sampling_capabilities or SamplingCapability()) if client.sampling_callback else None,
        elicitation=ElicitationCapability(form=form, url=url) if client.elicitation_callback else None,
        roots=RootsCapability(list_changed=True) if client.list_roots_callback else None,
        extensions=extensions or None,
    )


def _leaves_nothing(error: Exception) -> bool:
    """Whether a server has said to ``server/discover`` that it speaks neither a legacy version nor one of ours."""
    offered = offered_versions(error)
    return offered is not None and not any(each in HANDSHAKE_PROTOCOL_VERSIONS for each in offered)


def _ended_at_the_question(link: Link) -> bool:
    """Whether a process was lost while it negotiated. One that has not read the question died of something else."""
    obituary = link.obituary()
    return link.lost and link.failure is None and not obituary.unread and obituary.exit_code not in KILLED
