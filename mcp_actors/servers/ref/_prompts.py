"""Prompts and completion: messages, and methods that send them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from attrs import define
from mcp.types import (
    CompleteResult,
    GetPromptResult,
    Prompt,
    PromptReference,
    ResourceTemplateReference,
)

from ..._misuse import explained_methods
from ...catalog._schemas import kind_of
from ...config import mask_url
from ..record import require
from ..requests import (
    PROMPTS,
    ListAll,
    PlainRequest,
    given_text,
    given_texts,
    refused,
)
from ._base import ServerRequests

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ...transports import Json
    from ..record import ServerRecord
    from ..session import Session
    from ._pending import PendingRequest

COMPLETIONS_SINCE: Final = "2025-03-26"
"""The protocol version that introduced the completions capability. Older servers may complete without declaring it."""


MAX_VALUES: Final = 100
"""Values of a completion that the protocol allows; the SDK's class for all versions allows more."""


@define(eq=False)
class GetPrompt(PlainRequest[GetPromptResult]):
    """Get a prompt, filled in with arguments."""

    method: ClassVar[str] = "prompts/get"
    model: ClassVar[type[GetPromptResult]] = GetPromptResult

    prompt: str
    arguments: dict[str, str] | None = None

    @property
    def operation(self) -> str:
        """``prompts/get`` and the prompt's name."""
        return f"prompts/get {self.prompt!r:.80}"

    @property
    def target(self) -> str:
        """The prompt."""
        return self.prompt

    def check(self, session: Session, record: ServerRecord) -> None:
        """Check that the server has prompts.

        Raises:
            NotSupported: it has no prompts capability.
        """
        require("prompts", session.capabilities, record.config.name, self.operation)

    def given(self) -> Json:
        """Return the name and the arguments."""
        return {"name": self.prompt} if self.arguments is None else {"name": self.prompt, "arguments": self.arguments}

    def blocks(self, result: dict[str, Any]) -> Iterable[dict[str, Any]]:
        """Return the content of the messages."""
        return [message["content"] for message in result["messages"]]


@define(eq=False)
class Complete(PlainRequest[CompleteResult]):
    """Complete an argument of a prompt or of a resource template."""

    method: ClassVar[str] = "completion/complete"
    model: ClassVar[type[CompleteResult]] = CompleteResult

    ref: PromptReference | ResourceTemplateReference
    argument: dict[str, str]
    context_arguments: dict[str, str] | None = None

    @property
    def operation(self) -> str:
        """``completion/complete``, the argument's name and the prompt or template."""
        ref = self.ref
        of = ref.name if isinstance(ref, PromptReference) else mask_url(ref.uri)
        return f"completion/complete {self.argument['name']!r:.80} of {of!r:.200}"

    def check(self, session: Session, record: ServerRecord) -> None:
        """Check that the server completes.

        Raises:
            NotSupported: it has no completions capability.
        """
        if session.version >= COMPLETIONS_SINCE:
            require("completions", session.capabilities, record.config.name, self.operation)

    def given(self) -> Json:
        """Return the reference, the argument and the other arguments."""
        ref = self.ref.model_dump(by_alias=True, mode="json", exclude_none=True)
        known = {} if self.context_arguments is None else {"context": {"arguments": self.context_arguments}}
        return {"ref": ref, "argument": self.argument, **known}

    def _is_plain(self, result: dict[str, Any]) -> bool:
        return len(result["completion"]["values"]) <= MAX_VALUES and super()._is_plain(result)


@explained_methods
class PromptFunctions(ServerRequests):
    """The methods of a `ServerRef` for prompts and completions."""

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """What the server listed last, with ``ServerConfig.keep_resources``; else empty. Do not change the objects.

        The event `PromptsChanged` is emitted when this has changed.
        """
        return self._record.resources.prompts

    async def list_prompts(self) -> tuple[Prompt, ...]:
        """Request all pages of the server's prompts.

        The result is empty for a server without the prompts capability. It is not cached; the event `PromptsChanged`
        says when to list them again.

        **Cancellation**: leaves at once.

        Raises:
            RequestTimedOut, ConnectionLost, ServerUnavailable, ConnectFailed, LimitExceeded, HttpStatusError,
                mcp.MCPError: as for `call_tool`.
        """
        return await self._ask(ListAll(PROMPTS))

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> GetPromptResult:
        """Get a prompt, filled in with arguments.

        **Cancellation**: leaves at once.

        Args:
            name: the prompt's name as the server lists it.
            arguments: strings by parameter name.

        Returns:
            The SDK's result, with the prompt's ``messages``.

        Raises:
            InvalidArguments: `name` is not a string, or `arguments` does not map strings to strings. The server checks
                which arguments the prompt requires.
            NotSupported: the server has no prompts capability; or it asks for input that was not offered.
            RequestTimedOut, ConnectionLost, ServerUnavailable, ConnectFailed, LimitExceeded, HttpStatusError,
                mcp.MCPError: as for `call_tool`.
        """
        return await self._ask(self._get(name, arguments))

    def send_get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> PendingRequest[GetPromptResult]:
        """Prepare a `get_prompt` for a caller outside Trio (the asyncio bridge). Its deadline starts now.

        Raises:
            InvalidArguments: as for `get_prompt`.
        """
        return self._prepare(self._get(name, arguments))

    def _get(self, name: str, arguments: Mapping[str, str] | None) -> GetPrompt:
        server, method = self.name, "prompts/get"
        given_text(server, method, "name", name)
        texts = None if arguments is None else given_texts(server, method, "arguments", arguments)
        return GetPrompt(name, texts)

    async def complete(
        self,
        ref: PromptReference | ResourceTemplateReference,
        argument: Mapping[str, str],
        context_arguments: Mapping[str, str] | None = None,
    ) -> CompleteResult:
        """Request completions for an argument of a prompt or of a resource template.

        **Cancellation**: leaves at once.

        Args:
            ref: the prompt, ``mcp.types.PromptReference(name="…")``, or the template,
                ``mcp.types.ResourceTemplateReference(uri="…")``.
            argument: the argument's name and the text typed so far: ``{"name": "language", "value": "py"}``.
            context_arguments: the values of the other arguments, by name.

        Returns:
            The SDK's result, with its ``completion``: at most 100 ``values``, their ``total`` and ``has_more``.

        Raises:
            InvalidArguments: an argument has the wrong type.
            NotSupported: the server has no completions capability.
            RequestTimedOut, ConnectionLost, ServerUnavailable, ConnectFailed, LimitExceeded, HttpStatusError,
                mcp.MCPError: as for `call_tool`.
        """
        server, method = self.name, "completion/complete"
        _check_ref(server, method, ref)
        asked = given_texts(server, method, "argument", argument)
        if asked.keys() != {"name", "value"}:
            problem = 'does not have exactly "name" and "value"; give {"name": "language", "value": "py"}'
            raise refused(server, method, "argument", (), problem)
        known = None
        if context_arguments is not None:
            known = given_texts(server, method, "context_arguments", context_arguments)
        return await self._ask(Complete(ref, asked, known))


def _check_ref(server: str, method: str, ref: Any) -> None:
    if isinstance(ref, PromptReference):
        given_text(server, method, "ref", ref.name, "name")
    elif isinstance(ref, ResourceTemplateReference):
        given_text(server, method, "ref", ref.uri, "uri")
    else:
        problem = f"is {kind_of(ref)}; expected mcp.types.PromptReference(…) or ResourceTemplateReference(…)"
        raise refused(server, method, "ref", (), problem)
