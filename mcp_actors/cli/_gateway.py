"""Serve the servers of a file as one server: ``serve``.

Servers connect in the background while clients are served. If no server can be loaded, an error on stderr says why.
With ``--stdio``, the client's requests fail with the same error.

Owns: the group; background tasks; signal handlers of the process; sockets for clients; the control socket.
Writes: the gateway's servers, and its error for clients; stdout; stderr; the log.
Calls: config, config.formats, gateway, gateway.http, servers, servers.group, _output.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from signal import SIG_IGN, SIGHUP, SIGINT, SIGUSR1, SIGUSR2, getsignal
from typing import TYPE_CHECKING, Final

import outcome
import trio
from attrs import define, evolve, field

from .._collapse import collapse
from .._errors import ConfigError
from .._foreign import Log
from .._tasks import fan_out, name_of
from .._user_files import read_secret
from ..config import Callbacks, LoadedConfig, ServerConfig, parse_address
from ..config.formats import load_servers
from ..config.formats._load import refuse_ourselves, with_overrides
from ..gateway._control import serve_control
from ..gateway._daemon import cut_log, file_and_server, real_name
from ..gateway._front import Front
from ..gateway._listen import SOCKET_POLL, Acceptor, KeptSocket, listen
from ..gateway._network import Network, network_of
from ..gateway._own import in_background, open_in_background, start, start_eager
from ..gateway._serve import serve_front
from ..gateway._session import Gateway
from ..servers import SourceStatus
from ..servers.group import in_words
from ._output import EXIT_UNUSABLE, Failure, Misuse, UnusableFile, until_signalled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from ..kernel import Observer
    from ..servers import ReloadSummary

logger = Log("mcp_actors.gateway")


async def serve_file(
    config: str, *, stdio: bool, socket: str | None, secret_file: str | None, control: str | None, idle: float | None
) -> int:
    """Serve a file until the client over stdin has left, or until no client came for `idle` seconds.

    The first SIGTERM or SIGINT lets calls in flight finish. With `stdio`, return `EXIT_UNUSABLE` if no server can be
    loaded.

    Raises:
        Misuse: neither stdin nor a socket is given, or an address is invalid or has no secret.
        UnusableFile: no server can be loaded, without `stdio`; or the file of the secret cannot be used.
        Failure: the socket cannot be made.
        Signalled: a second signal or a closed terminal ended the command.
    """
    if not stdio and socket is None:
        raise Misuse(
            "say where the clients are: --stdio for one over stdin and stdout, --socket PATH for many of this user, or "
            "--http HOST:PORT or --socket HOST:PORT --secret-file FILE for many on other machines"
        )
    config, network = expanded(config), _network(socket, secret_file)
    log_to_stderr()
    if stdio and os.isatty(0):
        sys.stderr.write("serving one client over stdin; give this command to a program, or press Ctrl-D to end it\n")
    async with serving() as daemon:
        try:
            loaded, naming = load(config)
        except ConfigError as exc:
            if not stdio:
                raise
            daemon.gateway.refusal = str(exc)
            sys.stderr.write(f"error: {exc}\n")
            await serve_front(daemon.gateway, stop=daemon.stop)
            return EXIT_UNUSABLE
        with ExitStack() as stack:
            acceptors = await _acceptors(socket, network)
            for each in acceptors:
                stack.callback(each.close)
            async with opened(daemon, config, loaded, naming, control) as found:
                if socket is not None:
                    found.nursery.start_soon(_bound_log, socket)
                    sys.stdout.write("ready\n" if network is None else f"ready {acceptors[0].name}\n")
                    sys.stdout.flush()
                    # `attach` reads this pipe to its end, so it must close now, not when the daemon ends. Descriptor 1
                    # must not be free either: the next socket would get it, and a stray print would go to a client.
                    os.dup2(2, 1)
                secret = None if network is None else network.secret
                await serve_front(daemon.gateway, acceptors, secret=secret, idle_timeout=idle, stop=daemon.stop)
                daemon.end("the client over stdin has left" if stdio else f"no client for {idle} s")
    return 0


async def _acceptors(socket: str | None, network: Network | None) -> Sequence[Acceptor]:
    with listening_at(socket):
        if network is not None:
            return [*map(Acceptor, await listen(network.host, network.port))]
        return [] if socket is None else [KeptSocket(socket)]


_TO_LISTEN: Final = {
    errno.EADDRINUSE: "; stop the program that serves there, or choose another address",
    errno.ENOENT: "; create its folder first",
}


@contextmanager
def listening_at(place: str | None) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise Failure(f"cannot serve at {place}: {exc.strerror or exc}{_TO_LISTEN.get(exc.errno or 0, '')}") from None


async def _bound_log(socket: str) -> None:
    """Keep a daemon's log short, if stderr goes there."""
    log = f"{socket.removesuffix('.sock')}.log"
    while True:
        await trio.sleep(SOCKET_POLL)
        with suppress(OSError):  # there is no such log, or descriptor 2 cannot be read
            if os.path.samestat(os.stat(log), os.fstat(2)):
                cut_log(2)


def log_to_stderr() -> None:
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", force=True
    )


@define(eq=False)
class Daemon:
    """The signals and the end of a process that serves.

    Attributes:
        stop: set at the first SIGTERM or SIGINT; then calls are finished.
        hangup: set at a SIGHUP that asks for a reload.
        _terminals: stdin and stderr if terminals at the start; empty if SIGHUP is ignored, as under nohup.
    """

    gateway: Gateway = field(factory=Gateway)
    stop: trio.Event = field(factory=trio.Event)
    hangup: trio.Event = field(factory=trio.Event)
    _ends: bool = False
    _terminals: Sequence[int] = ()

    def end(self, why: str) -> None:
        if not self._ends:
            logger.info("mcp-actors ends: %s", why)
        self._ends = True

    def on_signal(self, number: int) -> bool:
        """Act on a signal. Return False if it ends the process at once."""
        name, hangup = name_of(number), number == SIGHUP
        # SIGHUP means both "reload" and "your terminal was closed". In the second case, isatty() is False already. A
        # reload instead would leave a process behind that no user sees.
        is_closed = hangup and self._terminals and not any(map(os.isatty, self._terminals))
        if number in (SIGUSR1, SIGUSR2) or (hangup and self.gateway.refusal and not is_closed):
            logger.info("%s is ignored", name)
        elif hangup and not is_closed:
            self.hangup.set()
        elif self.stop.is_set():
            logger.warning("%s: calls in flight are cancelled", name)
            return False
        else:
            if is_closed and 2 in self._terminals:
                # Writes to a closed terminal fail: the log in the next line, and Python's flush at exit.
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            self.end(f"{name}; {'the terminal was closed' if is_closed else 'calls in flight are finished first'}")
            self.stop.set()
        return not is_closed


@asynccontextmanager
async def serving() -> AsyncIterator[Daemon]:
    """Receive the signals of a serving process for a block, and log why the process ends.

    Raises:
        UnusableFile: a `ConfigError` ended the block.
        Signalled: a second signal or a closed terminal ended the block.
    """
    ignored = [each for each in (SIGHUP, SIGINT) if getsignal(each) is SIG_IGN]
    daemon = Daemon(terminals=() if SIGHUP in ignored else [*filter(os.isatty, (0, 2))])
    async with until_signalled(daemon.on_signal, SIGHUP, SIGUSR1, SIGUSR2, *({SIGINT} - {*ignored})):
        try:
            yield daemon
        except Exception as exc:
            if isinstance(failure := collapse(exc), ConfigError):
                raise UnusableFile(str(failure)) from None
            if not isinstance(failure, Failure):  # the command prints a Failure
                daemon.end(f"{type(failure).__name__}: {failure}")
            raise


@define(eq=False)
class ServedFile:
    """The servers of a file, while served.

    Attributes:
        nursery: has the gateway's tasks, such as reloads; cancelled at the end.
        per_identity: servers that each identity has alone; none unless there are `several` identities.
        on_reload: called with the new servers of each session and each identity, before any change; a `ConfigError`
            rejects the reload.
        page: the address of the page for people, with a token, and a file that opens it.
    """

    gateway: Gateway
    config: str
    nursery: trio.Nursery
    several: bool
    per_identity: Sequence[ServerConfig]
    on_reload: Callable[[Sequence[ServerConfig], Sequence[ServerConfig]], Awaitable[None]] | None = None
    page: dict[str, str] | None = None
    page_lock: trio.Lock = field(factory=trio.Lock)
    _reloading: trio.Lock = field(factory=trio.Lock)

    def check_open(self) -> None:
        if self.nursery.cancel_scope.cancel_called:
            raise Failure("the servers are being stopped")

    async def reload(self) -> ReloadSummary:
        """Read the file again, and apply the changes. Servers of sessions change for new sessions only.

        **Cancellation**: ends the wait. The change is completed by a task of its own.

        Raises:
            ConfigError: the file cannot be used, or `on_reload` refused.
            Failure: the servers are being stopped.
        """
        self.check_open()
        done = trio.Event()
        found: list[outcome.Outcome[ReloadSummary]] = []

        async def run() -> None:
            try:
                found.append(outcome.Value(await self._reload()))
            except Exception as exc:
                logger.error("reload: %s", exc)
                found.append(outcome.Error(exc))
            finally:
                done.set()

        # Not in the caller's task: a client of the control socket, or a browser, may leave at any time, and half a
        # reload would remove servers without starting their successors. If the gateway ends first, the new task is
        # cancelled and `found` stays empty.
        self.nursery.start_soon(run)
        await done.wait()
        if not found:
            self.check_open()
        return found[0].unwrap()

    async def _reload(self) -> ReloadSummary:
        async with self._reloading:
            file, _ = load(self.config, again=True)
            # A server whose entry became invalid stays as it was. The group does that for shared servers.
            old = [each for each in (*self.gateway.per_session, *self.per_identity) if each.name in file.failed]
            shared, own, per_identity = _by_isolation(evolve(file, servers=(*file.servers, *old)), several=self.several)
            front = self.gateway.front
            assert front is not None
            if self.on_reload is not None:
                await self.on_reload(own, per_identity)
            done = await front.group.reload(in_background(shared))
            self.gateway.per_session, self.per_identity, front.files = own, per_identity, (_status_of(file),)
            start_eager(self.nursery, front, shared.servers)
            new = [front.group[name] for name in (*done.added, *done.changed) if name in front.starting]
            await fan_out(start, new, "reload")  # so that the outcome names failed servers
            await front.wait_complete()  # so that a client that hears of the reload finds the new tools
            logger.info("reload: %s", in_words(done, front.failed_in(done)))
            return done

    async def reload_on_hangup(self, daemon: Daemon) -> None:
        """Reload at each SIGHUP. Does not return."""
        while True:
            await daemon.hangup.wait()
            daemon.hangup = trio.Event()  # another SIGHUP asks for another reload
            with suppress(Exception):  # it was logged
                await self.reload()


@asynccontextmanager
async def opened(
    daemon: Daemon,
    config: str,
    loaded: LoadedConfig,
    naming: str,
    control: str | None,
    *,
    several: bool = False,
    observers: Sequence[Observer] = (),
) -> AsyncIterator[ServedFile]:
    """Open the servers of a file for a block, start them, and obey a control socket at the path `control`, if any.

    The gateway of `daemon` gets the front.
    """
    stopping, gateway = trio.CancelScope(), daemon.gateway

    def stop() -> None:
        daemon.end("mcp-actors stop")
        stopping.cancel("mcp-actors stop")

    async with trio.open_nursery() as commands:
        shared, gateway.per_session, per_identity = _by_isolation(loaded, several=several)
        opening = open_in_background([shared], naming, Callbacks(logging=gateway.log), observers)
        with _accepting(control) as acceptor:
            with stopping:
                async with opening as group, trio.open_nursery() as nursery:
                    gateway.front = front = Front(group, naming)
                    front.files = (_status_of(loaded),)
                    start_eager(nursery, front, shared.servers)
                    found = ServedFile(gateway, config, nursery, several, per_identity)
                    nursery.start_soon(found.reload_on_hangup, daemon)
                    if acceptor is not None:
                        name, page = real_name(config), partial(_open_page, found)
                        answer = partial(serve_control, file=name, stop=stop, reload=found.reload, page=page)
                        commands.start_soon(answer, front, acceptor)
                    yield found
                    nursery.cancel_scope.cancel("no client is left")
            commands.cancel_scope.cancel("the servers are stopped")


async def _open_page(found: ServedFile) -> dict[str, str]:
    """Serve the page for people, unless served already."""
    from ..gateway.http import serve_page  # few daemons show it

    found.check_open()
    async with found.page_lock:
        if found.page is None:
            source = real_name(found.config)
            try:
                page, file, _ = await serve_page(found.nursery, found.gateway, source, found.reload)
            except OSError as exc:
                raise Failure(f"the page cannot be served: {exc.strerror or exc}") from None
            found.page = {"page": page, "file": file}
        return found.page


def _network(socket: str | None, secret_file: str | None) -> Network | None:
    """Return where to listen over TCP; None if the socket is a path."""
    if socket is None or "/" in socket or not socket.rpartition(":")[2].isdecimal() or ":" not in socket:
        if secret_file is not None:
            raise Misuse("--secret-file is for --socket HOST:PORT; a unix socket is for this user only")
        return None
    if secret_file is None:
        problem = f"--socket {socket} is on a network, where anyone could call"
        remedy = "add --secret-file FILE, with a secret that the clients have too (openssl rand -hex 32 makes one)"
        raise Misuse(f"{problem}; {remedy}")
    try:
        parse_address(socket)
    except ValueError as exc:
        raise Misuse(f"--socket {exc}") from None
    try:
        return network_of(socket, read_secret(secret_file))
    except (ValueError, OSError) as exc:
        raise UnusableFile(str(exc)) from None


def _accepting(control: str | None) -> AbstractContextManager[Acceptor | None]:
    """Accept commands at a path, if any."""
    if control is None:
        return nullcontext()
    with listening_at(control):
        return closing(KeptSocket(control))


def _by_isolation(file: LoadedConfig, *, several: bool) -> tuple[LoadedConfig, list[ServerConfig], list[ServerConfig]]:
    """Split the servers of a file: shared servers, servers of each session, servers of each identity."""
    enabled = [server for server in file.servers if server.enabled]
    own = [server for server in enabled if server.isolation == "per-session"]
    per_identity = [server for server in enabled if server.isolation == "per-identity" and several]
    return _with_disabled(file, own + per_identity), own, per_identity


def _with_disabled(loaded: LoadedConfig, others: Sequence[ServerConfig]) -> LoadedConfig:
    """Disable servers of a configuration. Their names stay known."""
    servers = tuple(evolve(server, enabled=False) if server in others else server for server in loaded.servers)
    return evolve(loaded, servers=servers)


def _status_of(loaded: LoadedConfig) -> SourceStatus:
    """Return the status of a file; a mistake in a required entry refuses the file."""
    error = ConfigError("; ".join(map(str, loaded.errors)), source=loaded.source) if loaded.errors else None
    now, refused = datetime.now(UTC), bool(loaded.required)
    return SourceStatus(name=loaded.source, read_at=now, error=error, refused=refused, current=error is None)


def expanded(config: str) -> str:
    """Expand a ``~``, because commands look for a daemon by the full path."""
    return os.path.expanduser(config)


def load(config: str, *, again: bool = False) -> tuple[LoadedConfig, str]:
    """Load a file, or the server named after ``#``; return the pattern of tool names too.

    With `again`, a file is loaded even if all entries have mistakes.

    Raises:
        ConfigError: the file cannot be read, or has no enabled server (of this name).
    """
    path, only = file_and_server(config)
    loaded = with_overrides(refuse_ourselves(load_servers(path, None)))
    if only:
        failed = {name: error for name, error in loaded.failed.items() if name in (only, loaded.source)}
        loaded = _with_disabled(loaded, [server for server in loaded.servers if server.name != only])
        loaded = evolve(loaded, failed=failed, errors=(*failed.values(),), required=loaded.required & failed.keys())
    usable = any(server.enabled for server in loaded.servers) or (again and loaded.errors)
    if usable and loaded.source not in loaded.failed:
        return loaded, "{tool}" if only else "{server}_{tool}"  # hosts add a prefix, and limit the length
    names = ", ".join(server.name for server in loaded.servers) or "none"
    problem = f"has no server {only!r} that is enabled; its servers: {names}" if only else "has no enabled server"
    raise ConfigError("; ".join(map(str, loaded.errors)) or f"{path} {problem}", source=path)
