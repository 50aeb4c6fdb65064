"""Sign in to servers by OAuth: ``login``, ``logout`` and ``whoami``.

No command here starts a server or imports `mcp_actors.servers`, a slow import. ``whoami`` sends no request.

Owns: the browser task; the stdin thread.
Writes: the token store; the command's output.
Calls: auth, config, transports, _configuration, _output.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, Final, TypeVar

import trio

from .._errors import ConfigError, ConnectFailed
from .._text import plain_text
from ..auth import AuthorizationClient, SignedIn, open_browser, sign_in, sign_out, signed_in
from ..config import ServerConfig, mask_url
from ..transports import open_exchange
from ._configuration import load
from ._output import Output, until_signalled

T = TypeVar("T")

NEEDS_AUTH: Final = 3
"""The exit code if a required sign-in is missing."""


async def sign_in_to_server(server: str, config: str | None, output: Output) -> int:
    loaded = load(config, [server], output)
    for error in loaded.errors:
        raise error
    (configured,) = loaded.servers

    async def show(url: str) -> str | None:
        output.note("Open this page to sign in:")
        output.messages.file.write(f"{plain_text(url, limit=len(url))}\n")
        pasted = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_try_browser, url)
            if sys.stdin.isatty():
                output.note("If the browser cannot reach this machine, paste the URL that it ends at:")
                # If the browser reaches this machine, the sign-in cancels this wait. The thread cannot be interrupted
                # in its read, so it is abandoned, and a line typed later is lost.
                pasted = await trio.to_thread.run_sync(_pasted, abandon_on_cancel=True)
            if pasted is not None:
                nursery.cancel_scope.cancel("the URL was pasted")
        return pasted

    async with until_signalled(), open_exchange(configured) as exchange:
        new = await sign_in(configured.name, exchange, show)
        # Before the block ends: a Ctrl-C after the write must not hide that the tokens are stored.
        output.line((configured.name, "bold"), f"  {_described(new, exchange)}")
    return 0


async def _try_browser(url: str) -> None:
    with suppress(Exception):  # the URL is on the terminal
        await open_browser(url)


def _pasted() -> str | None:
    with suppress(OSError):  # the terminal was closed
        for line in sys.stdin:
            if line.strip():
                return line.strip()
    return None


async def sign_out_of_servers(names: Sequence[str], config: str | None, output: Output) -> int:
    loaded = load(config, names, output)
    for server, _, was_signed_in in await _each(loaded.servers, sign_out, named=bool(names)):
        if was_signed_in or names:
            output.line((server, "bold"), "  signed out" if was_signed_in else "  was not signed in")
    return output.errors(loaded.errors)


async def show_sign_ins(names: Sequence[str], config: str | None, output: Output) -> int:
    loaded = load(config, names, output)
    missing, listed = False, []
    for server, exchange, found in await _each(loaded.servers, signed_in, named=bool(names)):
        if found is None and exchange.oauth.optional and not names:
            continue  # it may need no sign-in
        missing = missing or found is None or found.refused
        output.line((server, "bold"), f"  {'not signed in' if found is None else _described(found, exchange)}")
        details = {} if found is None else _details(found, exchange)
        listed.append({"server": server, "signed_in": found is not None and not found.refused, **details})
    output.json(listed)
    return output.errors(loaded.errors) or (NEEDS_AUTH if missing else 0)


async def describe_sign_in(server: ServerConfig) -> str | None:
    with suppress(ConfigError, ConnectFailed):  # the check of the server reports the same error
        for _, exchange, found in await _each([server], signed_in):
            return None if found is None else _described(found, exchange)
    return None


async def _each(
    servers: Iterable[ServerConfig], action: Callable[[AuthorizationClient], Awaitable[T]], *, named: bool = False
) -> list[tuple[str, AuthorizationClient, T]]:
    """Call a function for each enabled server with a sign-in.

    Raises:
        ConfigError: a server has no sign-in, and `named` is True.
    """
    results = []
    for server in servers:
        async with AsyncExitStack() as stack:
            if server.enabled:
                try:
                    exchange = await stack.enter_async_context(open_exchange(server))
                except ConfigError:
                    if named:
                        raise
                    continue  # it is a process, or has other credentials
                results.append((server.name, exchange, await action(exchange)))
    return results


def _details(found: SignedIn, exchange: AuthorizationClient) -> dict[str, Any]:
    mask = _masked_by(exchange, found)
    return {
        "issuer": mask(found.issuer),
        "client_id": mask(found.client.client_id),
        "scope": mask(found.tokens.scope),
        "expires_at": found.expires_at,
        "refreshable": found.renewable,
    }


def _masked_by(exchange: AuthorizationClient, found: SignedIn) -> Callable[[str | None], str | None]:
    """Return a function that masks the authorization server's texts."""
    exchange.learn_credentials(found.tokens, found.client)
    return lambda text: None if text is None else exchange.mask(text)


def _described(found: SignedIn, exchange: AuthorizationClient) -> str:
    mask = _masked_by(exchange, found)
    if found.refused:
        return "not signed in: its refresh token was refused"
    words = [f"signed in to {mask(found.issuer or mask_url(found.resource))}"]
    if found.tokens.scope:
        words.append(f"for {mask(found.tokens.scope)}")
    if found.renewable:
        words.append("and renewed until the provider ends it")
    elif found.expires_at is not None:
        words.append(_until(found.expires_at - time.time()))
    return plain_text(" ".join(words))


def _until(seconds: float) -> str:
    if seconds <= 0:
        return "which has expired"
    return f"for {seconds / 3600:.1f} h" if seconds >= 3600 else f"for {seconds / 60:.0f} min"
