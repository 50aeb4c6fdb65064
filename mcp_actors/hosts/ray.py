"""Run a gateway in an actor of Ray, and find it.

The actor, a `RayHost`, is placed, named and restarted by Ray. The actor runs the gateway in a thread with Trio; if a
running gateway fails, the actor logs the error and ends its own process. A restarted actor may be on another node, so
`ray_address` asks Ray for the address at each connect of a `Socket`.
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
from ..config.formats._load import refuse_ourselves, with_overrides
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

ADDRESS_TIMEOUT: Final = 20.0
"""Seconds for Ray to say where an actor is, perhaps after a restart. Less than the default `connect_timeout` (30)."""

ATTEMPT_TIMEOUT: Final = 1.0
"""Seconds for one question to an actor: a process that has died may never answer."""


class RayHost:
    """An actor that serves the servers of a file over TCP; tools keep their names.

    ``ray.remote(RayHost).options(name="tools", max_restarts=-1, num_cpus=0)`` is the class of the actor: with a name,
    restarted for ever, no processor reserved. The options are Ray's. Servers start in the background, and restart as
    the file says. As child processes of the actor, they end with it. If the gateway fails, the actor's process ends,
    and Ray restarts it, but not after the errors below. The configuration and the secret do not go through Ray.

    Args:
        config: the path of the file, on the node. Servers with ``"isolation": "per-session"`` are not served.
        secret_file: the path of a file with the secret, on the node, unreadable for other users.
        host: the node's host to listen on. Default None: the node's address known to Ray.

    Raises:
        ConfigError: the file has no usable server.
        OSError: the secret cannot be read, or the host cannot be listened on.
    """

    def __init__(self, config: str, *, secret_file: str, host: str | None = None) -> None:
        self._address: Future[str] = Future()
        # A coroutine method would make this an asyncio actor of Ray, so the coroutine is elsewhere. Ray's calls run in
        # the main thread, so Trio has a thread.
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
        # Exit the process: an exception in this thread would leave an actor that Ray takes for alive, and that serves
        # nothing. Ray counts the end as a crash, whichever thread exits, and restarts the actor.
        os._exit(1)


async def _serve(config: str, secret_file: str, host: str, started: Callable[[str], None]) -> None:
    loaded = with_overrides(refuse_ourselves(load_config(config)))
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

    While Ray starts or restarts the actor, the function waits, for at most 20 seconds. It asks in a thread, so the
    event loop goes on. The process must be connected to the cluster (``ray.init``).

    **Cancellation** of the function returns at once, and abandons the thread, which ends within a second if the cluster
    answers.

    Args:
        name: the name of the actor.
        namespace: the actor's namespace. Default None: the namespace of the process.

    Raises:
        ConnectionError: raised by the function: there is no such actor, it has died for good, or did not answer in
            time.
    """
    limiter = trio.CapacityLimiter(4)  # threads asking about one actor, abandoned ones too

    async def address() -> str:
        with trio.move_on_after(ADDRESS_TIMEOUT):
            while (found := await run_in_thread(partial(_ask, name, namespace), limiter)) is None:  # noqa: ASYNC110 - no event for it
                await trio.sleep(0.1)  # Ray restarts the actor
            return found
        reasons = "it is starting or suspended, no node has room for it, or the cluster is gone"
        raise ConnectionError(
            f"actor {name!r} of Ray did not answer within {ADDRESS_TIMEOUT:g} s: {reasons}; see `ray list actors`"
        )

    address.__qualname__ = f"ray_address({name!r})"  # shown by messages
    return address


def _ask(name: str, namespace: str | None) -> str | None:
    """Return the address of an actor, or None if it may have one later; else raise `ConnectionError`. Blocks."""
    if not ray.is_initialized():  # or Ray would start a cluster of its own
        raise ConnectionError("this process is not connected to Ray; call ray.init(address=…) first")
    try:
        return str(ray.get(ray.get_actor(name, namespace).address.remote(), timeout=ATTEMPT_TIMEOUT))
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
