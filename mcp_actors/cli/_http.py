"""Serve MCP and a web page over HTTP: ``serve --http`` and ``ui``.

``serve --http`` makes a token if there is none yet. With ``--no-token`` it listens at loopback addresses only. The
first signal lets requests finish (`HttpDoor.drain`); a second ends the command at once.

Owns: metrics of servers; the browser thread; listening sockets.
Writes: the `HttpDoor`'s tokens and page; the callback for reloads of the configuration file; the token file; stdout.
Calls: gateway, gateway.http, observe, _configuration, _control, _gateway, _output.
"""

from __future__ import annotations

import os
import re
import sys
import webbrowser
from contextlib import AsyncExitStack
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio
from attrs import frozen

from .._errors import ConfigError
from .._user_files import user_directory
from ..gateway._daemon import real_name
from ..gateway.http import (
    Access,
    add_page,
    is_loopback,
    listen_at,
    read_or_make_token,
    serve_http,
    serve_page,
    tokens_in,
    url_of,
)
from ..observe import Metrics
from ._configuration import find_file
from ._control import pages_of_daemons
from ._gateway import expanded, listening_at, load, log_to_stderr, opened, serving
from ._output import Failure, Misuse, Output

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Sequence

    from ..config import ServerConfig
    from ..gateway.http import HttpDoor


@frozen
class HttpOptions:
    address: str
    token_file: str | None
    no_token: bool
    host_names: Sequence[str]
    origins: Sequence[str]


async def serve_over_http(config: str, options: HttpOptions, control: str | None) -> int:
    """Serve the servers of a file over HTTP until a signal; the errors are those of `serve_file`."""
    config = expanded(config)
    _check_names(options)
    log_to_stderr()
    async with serving() as daemon, AsyncExitStack() as stack:
        listeners = [stack.enter_context(each) for each in await _listen(options)]
        access, file, made = _access(config, options)
        loaded, naming = load(config)
        several, metrics = len(access.identities) > 1, Metrics()
        async with opened(daemon, config, loaded, naming, control, several=several, observers=(metrics,)) as found:
            own = found.per_identity
            serve = partial(serve_http, daemon.gateway, listeners, access, per_identity=own, metrics=metrics)
            door = await found.nursery.start(serve)
            add_page(door, real_name(config), found.reload)
            found.on_reload = partial(_reload, door, file)
            sys.stdout.write(f"{url_of(listeners[0])}{f'#token={made}' if made else ''}\n")
            sys.stdout.flush()
            await daemon.stop.wait()
            await door.drain()
    return 0


async def show_page(config: str | None, output: Output, *, browser: bool) -> int:
    """Open the pages of a file's daemons in a browser; without a daemon, serve a named file until a signal."""
    pages = await pages_of_daemons(config, output)
    if not pages and config is None:
        file = find_file()
        raise Failure(f"no daemon runs for {file}; to start its servers here, name it: mcp-actors ui --config {file}")

    async def show(page: str, file: str) -> None:
        output.line(page)
        if browser:  # by the file: all users see a browser's command line, and the URL has a token
            await trio.to_thread.run_sync(webbrowser.open, Path(file).as_uri(), abandon_on_cancel=True)

    for each in pages:
        await show(*each)
    if not pages and config is not None:
        await _show_file(expanded(config), show)
    return 0


async def _show_file(config: str, show: Callable[[str, str], Awaitable[None]]) -> None:
    log_to_stderr()
    async with serving() as daemon:
        loaded, naming = load(config)
        async with opened(daemon, config, loaded, naming, None) as found:
            page, file, door = await serve_page(found.nursery, found.gateway, real_name(config), found.reload)
            await show(page, file)
            await daemon.stop.wait()
            await door.drain()


_ADDRESS_GIVEN: Final = re.compile(
    r"(?:([a-z][a-z\d+.-]*)://)?((?:[\da-f]*:){2,}[\da-f.]*|\[[\da-f:.]+\]|[\w.-]+)(:\d+)?", re.ASCII
)


def _check_names(options: HttpOptions) -> None:
    for each in options.host_names:
        _, host, _ = _parts_of(each)
        if each.lower() != (form := host.strip("[]")):
            raise Misuse(f"--host-name {each!r} is not the name of a host; write --host-name {form}")
    for each in options.origins:
        scheme, host, port = _parts_of(each)
        if each not in ("null", form := f"{scheme}://{host}{port}"):
            raise Misuse(f"--origin {each!r} is not an origin; write --origin {form}")


def _parts_of(given: str) -> tuple[str, str, str]:
    """Return scheme, host and port in the form of an origin."""
    scheme, host, port = found.groups() if (found := _ADDRESS_GIVEN.match(given.lower())) else (None, None, None)
    return scheme or "https", host or "gw.example.com", port or ""


async def _listen(options: HttpOptions) -> list[socket.socket]:
    try:
        with listening_at(options.address):
            listeners = await listen_at(options.address)
    except ConfigError as exc:
        raise Misuse(str(exc)) from None
    if options.no_token and not all(is_loopback(each.getsockname()) for each in listeners):
        for each in listeners:
            each.close()
        raise Misuse(f"--no-token at {options.address}: other machines could connect; use --token-file FILE")
    return listeners


def _access(config: str, options: HttpOptions) -> tuple[Access, str, str]:
    """Return the rules, the token file and a newly made token; the last two may be empty."""
    names = frozenset(name.lower() for name in options.host_names)
    if options.no_token:
        return Access({}, names, frozenset(options.origins)), "", ""
    if options.token_file is None:
        name = sha256(os.fsencode(real_name(config))).hexdigest()[:16]
        file = str(user_directory("state") / f"{name}.token")
    else:
        file = options.token_file
    made = "" if options.token_file is not None and os.path.exists(file) else read_or_make_token(file)
    return Access(tokens_in(file), names, frozenset(options.origins)), file, made


async def _reload(door: HttpDoor, file: str, own: Sequence[ServerConfig], each: Sequence[ServerConfig]) -> None:
    """Read the tokens again, and apply changes of tokens, and of the servers of each session and identity.

    Raises:
        ConfigError: the tokens are not valid, or need a restart. Nothing is changed.
    """
    tokens = tokens_in(file) if file else {}
    if len(tokens) > 1 and not door.several:
        problem = "the file has several tokens, and had one when the gateway was started; restart the gateway"
        raise ConfigError(problem, source=file)
    await door.use(tokens, own, each)
