"""Negotiate the protocol era with a server.

A process is sent ``server/discover``. If it has read that and does not answer for a while, it is sent ``initialize`` as
well, on the same connection; at once if ``server/discover`` fails or lists no modern version. The first usable result
decides, and the session drops a later one. Silence does not end a process before its time-outs have expired
(``_patience``): the process or its machine may be slow, or it may be a relay for a server that has not started yet.

A process is started once more, as a legacy server, if ``server/discover`` made it exit. Some servers do not survive
that request, and servers made with the Python SDK before 1.9 exit at the message that follows it. The same is done if a
process stays silent until its time-outs have expired.

Over HTTP and for in-process servers the SDK negotiates. It cannot do so for a subprocess, because it drops an answer
that takes longer than 10 s.
"""

from __future__ import annotations

import signal
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import trio
from attrs import define, field
from mcp import MCPError
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

from ..._foreign import Log
from ...config import AdaptedExtension
from ..policy import (
    ASK,
    QUIRK,
    check_handshake_version,
    era_after_failure,
    era_of,
    first_era,
    is_modern,
    offered_versions,
)
from ._failures import TimedOut
from ._patience import open_patience
from ._sdk import MAX_ROUNDS, BoundedClient

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from mcp import Client, ClientSession

    from ..basics import Background
    from ..record import ClientCallbacks, ServerRecord
    from ..transports import Link
    from ._patience import Patience

logger = Log("mcp_actors.servers")

# It receives the messages of a session. A KeyboardInterrupt raised in the middle of one would be lost with that
# message; with this protection Trio raises it in the main task instead.
trio.lowlevel.enable_ki_protection(JSONRPCDispatcher.run)

OURS: Final = Implementation(name="mcp_actors", version=version("mcp-actors"))
"""How this client introduces itself to servers, unless it is configured (``client_info``)."""

ANSWER_SHARE: Final = 1 / 10
"""Part of ``connect_timeout`` that a process has for its answer to ``server/discover``, from having read it until it is
sent ``initialize`` too: 3 s of the default 30. Servers answer in milliseconds or never."""

UNBOUNDED: Final = 30.0
"""Used instead of ``connect_timeout`` to compute the delay before ``initialize`` if that is None."""

KILLED: Final = (-signal.SIGKILL, -signal.SIGTERM)
"""Exit codes of a process that was killed from outside: by an operator, or because memory ran out."""

_AS_LEGACY: Final = InitializeResult(
    protocol_version=LATEST_HANDSHAKE_VERSION,
    capabilities=ServerCapabilities(),
    server_info=Implementation(name="", version=""),
)
"""Makes a session write requests in the legacy format until the era is known."""


class Negotiation:
    """The eras that one connect tries; records the one that the next connect begins with."""

    def __init__(self, record: ServerRecord) -> None:
        self._record = record
        self._remembered = record.opening.era
        self._era = record.opening.era or first_era(record.config)
        self._began = self._asked = trio.current_time()
        self._asked_both = False
        self._hurried = False
        self._unanswered = False

    def patience(self) -> AbstractAsyncContextManager[Patience]:
        """Bound the attempt that is about to begin."""
        self._asked_both = False
        return open_patience(self._record, began=self._began, hurried=self._hurried)

    def client(self, link: Link, callbacks: ClientCallbacks) -> Client:
        """Return the client for this link. Entering it negotiates, or leaves that to `agree`."""
        era, self._asked = self._era, trio.current_time()
        return BoundedClient(
            link.target,
            mode=LATEST_MODERN_VERSION if self._asks(link) else era.mode,
            prior_discover=era.discovered,
            client_info=self._record.client_info or OURS,
            input_required_max_rounds=MAX_ROUNDS,
            extensions=[AdaptedExtension(each) for each in self._record.config.extensions],
            cache=None,
            **callbacks,
        )

    def _asks(self, link: Link) -> bool:
        return self._era == ASK and link.pid is not None

    async def agree(self, client: Client, link: Link, patience: Patience, tasks: Background) -> None:
        """Finish the negotiation that entering the client began.

        Raises:
            mcp.MCPError, ValidationError, NoCommonVersion, RuntimeError: the negotiation failed.
        """
        session = client.session
        if self._asks(link):
            await self._ask_both(client, link, patience, tasks)
        elif self._era.mode not in ("auto", "legacy") and self._era.discovered is None:
            session.adopt(await _discover(session))
        elif self._era == ASK and session.discover_result is None:
            # The SDK does not tell why it fell back to `initialize`. If its own time-out has passed, that was the
            # reason.
            self._unanswered = trio.current_time() - self._asked >= DISCOVER_TIMEOUT_SECONDS
        if self._era.discovered is None:
            patience.answered()
        if self._unanswered:
            logger.warning(
                "server %r: answered initialize but not server/discover, and is used as a legacy server until it "
                "reconnects; set protocol='legacy' if it is one",
                self._record.config.name,
            )

    async def _ask_both(self, client: Client, link: Link, patience: Patience, tasks: Background) -> None:
        """Send ``server/discover`` to a process, later ``initialize`` too; adopt the first usable result."""
        session, answers, name = client.session, Answers(), self._record.config.name
        # These tasks live as long as the connection: a late answer then still finds its request and is dropped. A
        # shorter scope would cancel a request on the wire, which the protocol forbids for `initialize`.
        tasks.start_soon(answers.take_discover, session, name=f"{name}:server/discover")
        tasks.start_soon(self._wait_for_answer, answers, patience, name=f"{name}:probe")
        # No checkpoint between `outcome()` and `wait_change()`: an answer in between would be missed, and nothing else
        # wakes this task.
        while (outcome := answers.outcome()) is None:
            if answers.initialize_is_due and not self._asked_both:
                self._asked_both = True
                session.adopt(_AS_LEGACY)  # only changes later messages: server/discover is on the wire already
                tasks.start_soon(answers.take_initialize, client, name=f"{name}:initialize")
                patience.watch_reading(link)
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

    def succeeded(self, client: Client) -> None:
        """Remember the era of the server; forget it if only ``initialize`` was answered."""
        if self._record.config.protocol == "auto":
            self._record.opening.era = None if self._unanswered else era_of(client, self._era)

    def failed(self, error: BaseException | None) -> None:
        """Remember or forget the era after a failed connect. Without an `error`, the connect has timed out."""
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

    async def take_discover(self, session: ClientSession) -> None:
        """Send ``server/discover`` and store the answer."""
        try:
            self.discover = await _discover(session)
        except (MCPError, ValidationError) as exc:
            self.discover = exc
        self._note_change()

    async def take_initialize(self, client: Client) -> None:
        """Send ``initialize`` and store the answer."""
        try:
            self.initialize = await _initialize(client)
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


async def _discover(session: ClientSession) -> DiscoverResult:
    """Send ``server/discover`` without the SDK's time-out, which would drop a late answer."""
    return await session.send_request(DiscoverRequest(), DiscoverResult)


async def _initialize(client: Client) -> InitializeResult:
    """Send ``initialize`` as the SDK does, but do not adopt the answer."""
    assert client.client_info is not None  # `Negotiation.client` has set it
    params = InitializeRequestParams(
        protocol_version=LATEST_HANDSHAKE_VERSION,
        capabilities=_capabilities(client),
        client_info=client.client_info,
    )
    return await client.session.send_request(InitializeRequest(params=params), InitializeResult)


def _capabilities(client: Client) -> ClientCapabilities:
    """Return the capabilities of a legacy client, without extensions that claim results: those need the modern era."""
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


def _no_common_version(error: Exception) -> bool:
    """Return True if the error lists the versions of the server, and ``initialize`` cannot negotiate any of them."""
    offered = offered_versions(error)
    return offered is not None and not any(each in HANDSHAKE_PROTOCOL_VERSIONS for each in offered)


def _exited_after_discover(link: Link) -> bool:
    """Return True if ``server/discover`` made a process exit.

    False if it exited before it read the request, or was killed.
    """
    heard = link.heard is not False  # if the system does not report it, the request may have been read
    return link.lost and link.failure is None and heard and link.obituary().exit_code not in KILLED
