"""Prompts, and the completion of arguments: the messages about them, and the functions that send them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from attrs import field, frozen
from mcp.types import (
    CompleteRequest,
    CompleteRequestParams,
    CompleteResult,
    CompletionArgument,
    CompletionContext,
    GetPromptResult,
    Prompt,
    PromptReference,
    ResourceTemplateReference,
)

from ..catalog.schemas import kind_of
from ..config import mask_url
from ._asking import Asking
from ._given import given_text, given_texts, refused
from ._pages import all_pages
from ._request import Request, meta_for
from ._supported import require

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp import Client

    from ._record import ServerRecord

__all__ = ["Complete", "GetPrompt", "ListPrompts", "PromptFunctions"]

COMPLETIONS_SINCE: Final = "2025-03-26"
"""The version of the protocol that has a capability for completions. Before it, servers could complete without one."""


@frozen
class ListPrompts(Request[tuple[Prompt, ...]]):
    """List all prompts, all pages of them."""

    @property
    def operation(self) -> str:
        """``prompts/list``."""
        return "prompts/list"

    async def send(self, client: Client, record: ServerRecord) -> tuple[Prompt, ...]:
        """``prompts/list``, as often as there are pages; a server without the prompts capability has none."""
        if client.server_capabilities.prompts is None:
            return ()
        meta = meta_for(client, record)
        return await all_pages(
            lambda cursor: client.list_prompts(cursor=cursor, meta=meta, cache_mode="bypass"),
            lambda page: page.prompts,
            record=record,
            what="prompts",
        )


@frozen
class GetPrompt(Request[GetPromptResult]):
    """Have a prompt filled in."""

    prompt: str
    arguments: dict[str, str] | None = field(default=None, hash=False)

    @property
    def operation(self) -> str:
        """``prompts/get``, and which."""
        return f"prompts/get {self.prompt!r:.80}"

    async def send(self, client: Client, record: ServerRecord) -> GetPromptResult:
        """``prompts/get``.

        Raises:
            NotSupported: the server has no prompts.
            mcp.MCPError: as for `Request.send`.
        """
        require("prompts", client, record.config.name, self.operation)
        return await client.get_prompt(self.prompt, self.arguments, meta=meta_for(client, record))


@frozen
class Complete(Request[CompleteResult]):
    """Have an argument completed."""

    ref: PromptReference | ResourceTemplateReference = field(hash=False)
    argument: dict[str, str] = field(hash=False)
    context_arguments: dict[str, str] | None = field(default=None, hash=False)

    @property
    def operation(self) -> str:
        """``completion/complete``, and of what."""
        ref = self.ref
        of = ref.name if isinstance(ref, PromptReference) else mask_url(ref.uri)
        return f"completion/complete {self.argument['name']!r:.80} of {of!r:.200}"

    async def send(self, client: Client, record: ServerRecord) -> CompleteResult:
        """``completion/complete``.

        Raises:
            NotSupported: the server completes nothing.
            mcp.MCPError: as for `Request.send`.
        """
        if client.protocol_version >= COMPLETIONS_SINCE:
            require("completions", client, record.config.name, self.operation)
        known = self.context_arguments
        params = CompleteRequestParams(
            ref=self.ref,
            argument=CompletionArgument(**self.argument),
            context=None if known is None else CompletionContext(arguments=known),
            _meta=meta_for(client, record),
        )
        # Not by the client's own function, which takes no meta.
        return await client.session.send_request(CompleteRequest(params=params), CompleteResult)


class PromptFunctions(Asking):
    """What can be asked of a server about its prompts, and about what may stand in an argument."""

    async def list_prompts(self) -> tuple[Prompt, ...]:
        """Ask the server for all its prompts, all pages of them.

        A server without the prompts capability has none, and is not asked. Nothing is kept here: who wants to keep a
        list hears in `PromptsChanged` that there is another one.

        **Cancellation**: the caller leaves at once.

        Raises:
            RequestTimedOut, ConnectionLost, ServerUnavailable, ConnectFailed, LimitExceeded, HttpStatusError,
                mcp.MCPError: as for `call_tool`.
        """
        return await self._ask(ListPrompts())

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> GetPromptResult:
        """Have a prompt filled in with arguments.

        **Cancellation**: the caller leaves at once.

        Args:
            name: its name as the server lists it.
            arguments: texts by parameter name.

        Returns:
            Its ``messages``, as the SDK has them.

        Raises:
            InvalidArguments: `name` or `arguments` cannot be sent. What the prompt requires is for the server to say.
            NotSupported: the server has no prompts; or it asks for input that it was not offered.
            RequestTimedOut, ConnectionLost, ServerUnavailable, ConnectFailed, LimitExceeded, HttpStatusError,
                mcp.MCPError: as for `call_tool`.
        """
        server, method = self.name, "prompts/get"
        given_text(server, method, "name", name)
        texts = None if arguments is None else given_texts(server, method, "arguments", arguments)
        return await self._ask(GetPrompt(name, texts))

    async def complete(
        self,
        ref: PromptReference | ResourceTemplateReference,
        argument: Mapping[str, str],
        context_arguments: Mapping[str, str] | None = None,
    ) -> CompleteResult:
        """Ask what could stand in an argument of a prompt, or of a template of resources.

        **Cancellation**: the caller leaves at once.

        Args:
            ref: of what: ``mcp.types.PromptReference(name="…")`` or ``mcp.types.ResourceTemplateReference(uri="…")``.
            argument: which one, and what there is of it: ``{"name": "language", "value": "py"}``.
            context_arguments: the arguments that stand already, by name.

        Returns:
            Its ``completion``, as the SDK has it: ``values``, at most a hundred, their ``total`` and ``has_more``.

        Raises:
            InvalidArguments: what is given cannot be sent.
            NotSupported: the server completes nothing.
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
