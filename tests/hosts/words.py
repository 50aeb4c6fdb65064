"""Use an actor of Ray wrongly, or while it cannot answer, and print what a user reads, as JSON.

``python -m tests.hosts.words FOLDER`` is a program of its own, because Ray changes the process that uses it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

import trio

from mcp_actors import ConnectionLost
from mcp_actors.hosts import ray as hosts
from mcp_actors.hosts.ray import RayHost, ray_address

from ..gateway.daemons import counting
from ..servers.processes import eventually
from .cluster import NAME, Nodes, cluster, place, start_host

PATIENCE: Final = 3.0
"""Seconds to wait for an actor here, in place of `hosts.ADDRESS_TIMEOUT`."""


class Failing(RayHost):
    """A host whose gateway fails once a file is there."""

    def __init__(self, config: str, *, secret_file: str) -> None:
        serve, signal_file = vars(hosts)["serve_front"], Path(config).with_name("fail")

        async def serve_until_told(*args: Any, **options: Any) -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(fail)
                await serve(*args, **options)

        async def fail() -> None:
            await eventually(signal_file.exists)
            signal_file.unlink()
            raise RuntimeError("a defect")

        vars(hosts)["serve_front"] = serve_until_told
        super().__init__(config, secret_file=secret_file, host="127.0.0.1")

    def pid(self) -> int:
        """Return the process of the actor."""
        return os.getpid()


def asked(name: str, namespace: str | None = None) -> str:
    """Ask for an address; return it, or the error."""
    try:
        return trio.run(ray_address(name, namespace=namespace))
    except ConnectionError as error:
        return str(error)


async def while_suspended() -> dict[str, Any]:
    """Ask for the address of an actor that is suspended, and look at how long the other tasks have waited."""
    longest, said = 0.0, ""

    async def tick() -> None:
        nonlocal longest
        while True:
            before = trio.current_time()
            await trio.sleep(0.01)
            longest = max(longest, trio.current_time() - before)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(tick)
        try:
            await ray_address(NAME)()
        except ConnectionError as error:
            said = str(error)
        began = trio.current_time()
        with trio.move_on_after(0.1):
            await ray_address(NAME)()
        left = trio.current_time() - began
        nursery.cancel_scope.cancel("enough")
    return {"suspended": said, "longest step": longest, "cancelled after": left}


def lost() -> ConnectionLost:
    """Return an error with all that an error can have."""
    try:
        try:
            raise OSError(5, "the cable is cut")
        except OSError as cause:
            raise ConnectionLost("server 'a': lost", server="a", outcome="not_sent") from cause
    except ConnectionLost as error:
        error.add_note("a note")
        return error


def parts(error: ConnectionLost, original: ConnectionLost) -> list[Any]:
    """Return what is left of an error."""
    return [isinstance(error, ConnectionLost), error.outcome, error.server, error.__notes__, repr(original.__cause__)]


def pickled() -> dict[str, Any]:
    """Return an error from a task of Ray, and raise it there."""
    import ray

    def raise_it() -> None:
        raise lost()

    returned = ray.get(ray.remote(lost).remote())
    try:
        ray.get(ray.remote(max_retries=0)(raise_it).remote())
    except ConnectionLost as error:
        return {"returned": parts(returned, returned), "raised": parts(error, error.cause)}  # type: ignore[attr-defined]  # of Ray
    raise AssertionError("it was not raised")


def dead(nodes: Nodes, folder: Path) -> dict[str, str]:
    """Start hosts that cannot start, and ask for their addresses."""
    good, open_to_all = folder / "secret", folder / "open"
    open_to_all.write_text(good.read_text())
    open_to_all.chmod(0o644)
    nothing = folder / "nothing.json"
    nothing.write_text('{"mcpServers": {}}')
    two = folder / "two.json"
    two.write_text(json.dumps({"mcpServers": {key: {"url": "http://127.0.0.1:1/"} for key in ("a", "a__env")}}))
    wrong = {
        "no file": (str(folder / "no.json"), good),
        "no servers": (str(nothing), good),
        "open secret": (str(folder / "servers.json"), open_to_all),
        "two servers": (str(two), good),
    }
    said = {}
    environment = {"env_vars": {"MCP_ACTORS__A__ENV__URL": "http://127.0.0.1:2/"}}
    for name, (config, secret) in wrong.items():
        options = {"name": name, "max_restarts": -1, "runtime_env": environment if config == str(two) else None}
        actor = place(RayHost, nodes.worker, **options).remote(config, secret_file=str(secret))
        said[name] = asked(name)
        del actor
    return said


def restarted(nodes: Nodes, folder: Path) -> bool:
    """Let a gateway fail; return True if the actor is another process then, and has another address."""
    import ray

    actor = place(Failing, nodes.worker, name="failing", max_restarts=1).remote(
        str(folder / "servers.json"), secret_file=str(folder / "secret")
    )
    before = ray.get([actor.pid.remote(), actor.address.remote()])
    (folder / "fail").touch()
    while (folder / "fail").exists():
        time.sleep(0.01)
    address = before[1]
    while address == before[1]:
        address = asked("failing")
    return bool(ray.get(actor.pid.remote()) != before[0]) and address.startswith("127.0.0.1:")


def main(folder: Path) -> None:
    """Print what is said."""
    said: dict[str, Any] = {"not connected": asked(NAME)}
    with cluster(folder) as nodes:
        said["no actor"] = asked(NAME)
        said["another namespace"] = asked(NAME, "elsewhere")
        host = start_host(nodes, folder, counting=counting(folder / "ledger"))
        said["address"] = asked(NAME)
        wait = hosts.ADDRESS_TIMEOUT
        said |= dead(nodes, folder)
        said |= pickled()
        said["restarted"] = restarted(nodes, folder)
        pid = nodes.process("RayHost")
        os.kill(pid, signal.SIGSTOP)
        vars(hosts)["ADDRESS_TIMEOUT"] = PATIENCE
        said |= trio.run(while_suspended)
        vars(hosts)["ADDRESS_TIMEOUT"] = wait
        threading.Timer(2 * hosts.ATTEMPT_TIMEOUT, os.kill, [pid, signal.SIGCONT]).start()
        said["resumed"] = asked(NAME)
        del host
    print(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
