"""Run a gateway in an actor of Ray, and find it.

`RayHost` is the class of the actor. Ray places it, names it and restarts it. It serves the servers of a file over TCP,
in a thread of its own with Trio, because Ray's calls have the main one. `ray_address` asks Ray where it is: `Socket`
does so at each connect, so a restarted actor is found on its new node. Only the name, the paths and the address go
through Ray; calls go over the socket. The files, which have the configuration and the secret, are read on the node.

It uses the files of ``gateway`` and opens the group itself. This is the only file that imports ``ray``.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from .._collapse import collapse
from .._errors import ConfigError
from .._foreign import Log
from .._tasks import run_in_thread
from .._user_files import read_secret
from ..config import load_config
from ..config.formats._load import refuse_ourselves
from ..gateway._front import Front
from ..gateway._listen import Acceptor, listen
from ..gateway._network import network_of
from ..gateway._own import in_background, start_eager
from ..gateway._serve import serve_front
from ..gateway._session import Gateway
from ..servers import open_servers

try:
    import ray
    from ray.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError, RayError
except ModuleNotFoundError as _exc:
    if _exc.name != "ray":
        raise
    _missing = f"{__name__} needs the package 'ray', which is not installed; run: pip install 'mcp-actors[ray]'"
    raise ImportError(_missing, name="ray") from _exc

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["RayHost", "ray_address"]

_log: Final = Log("mcp_actors.hosts")

WAIT: Final = 20.0
"""Seconds in which Ray has to say where an actor is: it may be restarting it. The default `connect_timeout` is 30."""

ATTEMPT: Final = 1.0
"""Seconds for one question to an actor. One that was asked of a process that has died may never be answered."""


class RayHost:
    """An actor that serves the servers of a file over TCP, each under its own names.

    ``ray.remote(RayHost).options(name="tools", max_restarts=-1, num_cpus=0)`` is the class of the actor: with a name,
    restarted for ever, no processor reserved. Such options are Ray's. Servers are started in the background and
    restarted as their file says. They are child processes of the actor, and end with it. If the gateway fails, the
    process of the actor ends, and Ray restarts it.

    Args:
        config: the path of the file, on the node. Its servers with ``"isolation": "per-session"`` are not served.
        secret_file: the path of a file with the secret, on the node, that other users cannot read.
        host: the host to listen on, of the node. Default None: the address by which Ray knows the node.

    Raises:
        ConfigError: the file has no server that can be used. Ray then starts the actor no more.
        OSError: the secret cannot be read, or the host cannot be listened on. Likewise.
    """

    def __init__(self, config: str, *, secret_file: str, host: str | None = None) -> None:
        self._address: Future[str] = Future()
        # A method that is a coroutine function would make this an asyncio actor of Ray, so the coroutine is elsewhere.
        serving = partial(_serve, config, secret_file, host or ray.util.get_node_ip_address(), self._address.set_result)
        threading.Thread(target=self._run, args=(serving,), name="mcp-actors", daemon=True).start()
        self._address.result()

    def address(self) -> str:
        """Return the host and the port, such as ``"10.0.0.7:41234"``."""
        return self._address.result()

    def _run(self, serving: Callable[[], Awaitable[None]]) -> None:
        try:
            trio.run(serving)
        except Exception as exc:
            if not self._address.done():
                self._address.set_exception(collapse(exc))
                return
            _log.exception("the gateway of this actor failed; its process ends")
        # Ray notices the end of a process and counts it as a crash, whichever thread ends it.
        os._exit(1)


async def _serve(config: str, secret_file: str, host: str, started: Callable[[str], None]) -> None:
    loaded = refuse_ourselves(load_config(config))
    for error in loaded.errors:
        _log.warning("%s", error)
    servers = [each for each in loaded.servers if each.enabled and each.isolation == "shared"]
    if not servers:
        raise loaded.errors[0] if loaded.errors else ConfigError(f"{config} has no enabled server", source=config)
    network = network_of(f"[{host}]:0" if ":" in host else f"{host}:0", read_secret(secret_file))
    opening = open_servers(*map(in_background, servers), max_servers=sum(each.replicas for each in servers))
    async with opening as group, trio.open_nursery() as nursery:
        front = Front(group, "{server}_{tool}")
        start_eager(nursery, front, servers)
        acceptors = [*map(Acceptor, await listen(network.host, network.port))]
        started(acceptors[0].name)
        await serve_front(Gateway(front), acceptors, secret=network.secret)


def ray_address(name: str, *, namespace: str | None = None) -> Callable[[], Awaitable[str]]:
    """Return an async function that asks Ray for the address of a `RayHost`, for ``Socket(ray_address("tools"), …)``.

    While Ray starts or restarts the actor, the function waits, for 20 seconds at most. It asks in a thread, so the
    event loop goes on. This process must be connected to the cluster (``ray.init``).

    **Cancellation** of the function leaves at once, and abandons the thread, which ends within a second if the cluster
    answers.

    Args:
        name: the name of the actor.
        namespace: its namespace. Default None: that of this process.

    Raises:
        ConnectionError: by the function; there is no such actor, it has died for good, or there was no answer in time.
    """
    limiter = trio.CapacityLimiter(4)  # threads that ask about one actor, those that were abandoned included

    async def address() -> str:
        with trio.move_on_after(WAIT):
            while (found := await run_in_thread(partial(_ask, name, namespace), limiter)) is None:  # noqa: ASYNC110 - no event for it
                await trio.sleep(0.1)  # Ray is restarting the actor
            return found
        reasons = "it is starting or suspended, no node has room for it, or the cluster is gone"
        raise ConnectionError(
            f"actor {name!r} of Ray did not answer within {WAIT:g} s: {reasons}; see `ray list actors`"
        )

    address.__qualname__ = f"ray_address({name!r})"  # as messages show it
    return address


def _ask(name: str, namespace: str | None) -> str | None:
    """Return the address of an actor, or None if it may have one later. Blocks.

    Raises:
        ConnectionError: it will not.
    """
    if not ray.is_initialized():  # Ray would start a cluster of its own
        raise ConnectionError("this process is not connected to Ray; call ray.init(address=…) first")
    try:
        return str(ray.get(ray.get_actor(name, namespace).address.remote(), timeout=ATTEMPT))
    except (GetTimeoutError, ActorUnavailableError):
        return None
    except ValueError:
        where = f"namespace {namespace or ray.get_runtime_context().namespace!r}"
        problem = f"Ray has no actor {name!r} in {where}, or it has died for good"
        raise ConnectionError(f"{problem}; start it, or set namespace=…") from None
    except ActorDiedError as exc:
        reason = str(exc).strip().rpartition("\n")[2]
        raise ConnectionError(f"actor {name!r} of Ray has died for good ({reason}); start it again") from None
    except RayError as exc:
        raise ConnectionError(f"Ray did not find actor {name!r} ({type(exc).__name__}: {exc})") from None
