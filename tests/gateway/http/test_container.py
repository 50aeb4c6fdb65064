"""The container file on the page about HTTP, built from this checkout by podman and run; ``nox -s container``.

Nothing is downloaded: the image that the file names has to be there, and all wheels are in the folder that
``CONTAINER_WHEELS`` names. pip finds them by a configuration that is mounted while the image is built. A container has
a network of its own, without any other machine. Clients are outside: each writes to a program in the container, which
passes its bytes on.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from attrs import define, field

from ...servers.processes import BOUND
from ...source import PACKAGE, ROOT
from .doors import TOKEN, Peer
from .test_page import PAGE, block

WHEELS: Final = os.environ.get("CONTAINER_WHEELS", "")

SLOW: Final = """
import anyio, pathlib, subprocess
from mcp.server.mcpserver import Context, MCPServer
server = MCPServer("slow")
@server.tool()
async def wait(context: Context) -> str:
    await context.report_progress(1)
    while not pathlib.Path("/tmp/go").exists():
        await anyio.sleep(0.01)
    return "done"
@server.tool()
def leave() -> str:
    return subprocess.run(["sh", "-c", "true & echo $!"], capture_output=True, text=True).stdout
server.run()
"""
"""A server with a call that waits for a file, and one that leaves a process to the first one of the container."""

RELAY: Final = """
import os, socket, threading
connection = socket.create_connection(("127.0.0.1", 8000))
def send():
    while data := os.read(0, 65536):
        connection.sendall(data)
threading.Thread(target=send, daemon=True).start()
while data := connection.recv(65536):
    os.write(1, data)
"""

DIGESTS: Final = """
import hashlib, json, mcp_actors, pathlib
above = pathlib.Path(mcp_actors.__file__).parent.parent
files = [path for path in above.glob("mcp_actors/**/*") if path.is_file() and path.suffix != ".pyc"]
print(json.dumps({str(path.relative_to(above)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}))
"""


@cache
def lacking() -> str | None:
    """Return what is missing to build the image; None if nothing is."""
    if not WHEELS:
        return "a folder of wheels is missing; run: nox -s container"
    if shutil.which("podman") is None:
        return "podman is missing"
    base = block("dockerfile").split()[1]
    if subprocess.run(["podman", "image", "exists", base]).returncode != 0:
        return f"the image is missing; run: podman pull {base}"
    return None


def podman(*words: str, text: str = "") -> str:
    """Run a command of podman with a text as its input, and return what it prints."""
    ran = subprocess.run(["podman", *words], input=text, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """Build the file as it is on the page."""
    if missing := lacking():
        pytest.skip(missing)
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder, "context")
        context.mkdir()
        (context / "Containerfile").write_text(f"{block('dockerfile')}\n")
        entries: dict[str, Any] = {
            "time": {"command": "mcp-server-time", "mcp_actors": {"required": True}},
            "slow": {"command": "python", "args": ["-c", SLOW], "mcp_actors": {"required": True}},
        }
        (context / "servers.json").write_text(json.dumps({"mcpServers": entries}))
        (context / "servers.json").chmod(0o600)  # as files with credentials are
        pip = Path(folder, "pip.conf")
        pip.write_text("[global]\nno-index = true\nfind-links = /wheels\n")
        mounts = [f"--volume={Path(WHEELS).resolve()}:/wheels:ro", f"--volume={pip}:/etc/pip.conf:ro"]
        # A layer that was kept would have another version of the package.
        kept = ["--layers=false", "--security-opt=label=disable"]
        built = podman("build", "--quiet", "--pull=never", "--network=none", *kept, *mounts, str(context))
    try:
        yield built
    finally:
        podman("rmi", "--force", built)


@define(eq=False)
class Container:
    """A container that runs, by the name that podman knows."""

    name: str
    program: trio.Process
    nursery: trio.Nursery
    streams: list[trio.abc.AsyncResource] = field(factory=list)

    async def wait_for(self, text: str) -> None:
        """Wait until it prints this."""
        assert self.program.stdout is not None
        printed = b""
        with trio.fail_after(BOUND):
            while text.encode() not in printed:
                data = await self.program.stdout.receive_some()
                assert data, f"it has ended after {printed.decode()}"
                printed += data

    async def run(self, *words: str) -> str:
        """Run a command in it, and return what it prints."""
        return await trio.to_thread.run_sync(partial(podman, "exec", self.name, *words))

    async def connect(self) -> Peer:
        """Connect a client."""
        command = ["podman", "exec", "--interactive", self.name, "python", "-c", RELAY]
        relay = partial(trio.run_process, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, check=False)
        started: trio.Process = await self.nursery.start(relay)
        assert started.stdin is not None
        assert started.stdout is not None
        stream: Any = trio.StapledStream(started.stdin, started.stdout)  # it has all that a peer uses
        self.streams.append(stream)
        return Peer(stream, "127.0.0.1:8000")

    async def wait_ready(self) -> None:
        """Wait until it has printed its address, and all of its servers are connected."""
        await self.wait_for("http://127.0.0.1:8000/\n")
        probe = await self.connect()
        with trio.fail_after(BOUND):
            while (await probe.fetch("GET", "/readyz", token=None)).status != 200:
                pass

    async def begin_call(self) -> Peer:
        """Begin a call that ends once the file ``/tmp/go`` exists."""
        peer = await self.connect()
        await peer.post_modern("tools/call", {"name": "slow_wait", "arguments": {}}, meta={"progressToken": 1})
        await peer.read_head()
        assert (await peer.read_event())["method"] == "notifications/progress"
        return peer

    async def terminate(self) -> None:
        """Send SIGTERM to its first process."""
        await trio.to_thread.run_sync(podman, "kill", "--signal=TERM", self.name)

    async def begin_to_end(self) -> None:
        """Send SIGTERM, and wait until the gateway says that it is not ready."""
        probe = await self.connect()
        await self.terminate()
        with trio.fail_after(BOUND):
            while (await probe.fetch("GET", "/readyz", token=None)).status == 200:
                pass

    async def wait(self) -> int:
        """Wait for its end, and return its exit code."""
        with trio.fail_after(BOUND):
            return await self.program.wait()


[SECRET] = re.findall(r"`--secret mcp,target=token,([^`]+)`", PAGE.read_text())
"""How the page mounts a token."""


@asynccontextmanager
async def running(image: str, secret: str = SECRET) -> AsyncIterator[Container]:
    """Run the image with as few rights as possible. `secret` is how the token is mounted, or empty."""
    name = f"mcp-actors-test-{os.getpid()}"
    restricted = ["--network=none", "--read-only", "--cap-drop=all", "--security-opt=no-new-privileges"]
    # In an image that is read-only, podman cannot make the file on which it mounts the secret.
    mounted = ["--tmpfs=/run/secrets", f"--secret={name},target=token,{secret}"] if secret else []
    command = ["podman", "run", "--rm", f"--name={name}", "--pull=never", *restricted, *mounted, image]
    podman("secret", "create", name, "-", text=f"ann {TOKEN}\n")
    try:
        async with trio.open_nursery() as nursery:
            output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            run = partial(trio.run_process, command, stdin=subprocess.DEVNULL, check=False, **output)
            container = Container(name, await nursery.start(run), nursery)
            try:
                yield container
            finally:  # then all programs of the nursery end by themselves
                podman("rm", "--force", "--ignore", "--time=0", name)
                for stream in container.streams:
                    await trio.aclose_forcefully(stream)
    finally:
        podman("secret", "rm", name)


def test_the_image_has_the_package_of_this_checkout(image: str) -> None:
    there = podman("run", "--rm", "--pull=never", "--network=none", "--entrypoint=python", image, "-c", DIGESTS)
    files = [path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    here = {str(path.relative_to(ROOT)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    assert json.loads(there) == here


async def test_it_serves_clients_with_the_token_and_ends_with_0(image: str) -> None:
    async with running(image) as container:
        await container.wait_ready()
        assert await container.run("id", "-u") == "1000"
        assert await container.run("sh", "-c", "cd && pwd") == "/home/mcp"
        peer = await container.connect()
        assert (await peer.fetch("GET", "/healthz", token=None)).status == 200
        assert (await peer.ask("tools/list", token=None)).status == 401
        assert "Europe/Paris" in await peer.call("time_get_current_time", timezone="Europe/Paris")
        processes = [Path("/proc", number) for number in podman("top", container.name, "hpid").split()[1:]]
        assert all(each.exists() for each in processes)
        assert len(processes) >= 4  # the first one, the gateway, and two servers
        await container.begin_to_end()
        assert await container.wait() == 0
        assert not any(each.exists() for each in processes)


async def test_sigterm_lets_a_call_be_finished(image: str) -> None:
    async with running(image) as container:
        await container.wait_ready()
        peer = await container.begin_call()
        await container.begin_to_end()
        await container.run("touch", "/tmp/go")
        assert (await peer.read_event())["result"]["content"][0]["text"] == "done"
        assert await container.wait() == 0


async def test_a_second_sigterm_ends_it_within_a_call(image: str) -> None:
    async with running(image) as container:
        await container.wait_ready()
        await container.begin_call()
        await container.begin_to_end()
        await container.terminate()
        assert await container.wait() == 128 + signal.SIGTERM


async def test_sigterm_ends_it_before_it_serves(image: str) -> None:
    """For the first process of a container the kernel drops a signal without a handler, so it must not be Python.

    The code is that of the default action of SIGTERM if Python has not imported the command yet.
    """
    async with running(image) as container:
        with trio.fail_after(BOUND):
            while podman("ps", "--quiet", f"--filter=name={container.name}", "--filter=status=running") == "":
                await trio.lowlevel.checkpoint()
        await container.terminate()
        assert await container.wait() in (0, 128 + signal.SIGTERM)


async def test_a_process_that_a_server_leaves_is_reaped(image: str) -> None:
    async with running(image) as container:
        await container.wait_ready()
        left = int(await (await container.connect()).call("slow_leave"))
        with trio.fail_after(BOUND):
            while await container.run("sh", "-c", f"if test -e /proc/{left}; then echo there; fi"):
                pass


@pytest.mark.parametrize(
    ("secret", "said"),
    [
        ("", "cannot be made (Permission denied); name a file that exists"),
        ("uid=0,mode=0444", "can be read by other users (-r--r--r--); give it a group of user 1000"),
        ("uid=1000,mode=0440", "can be read by other users (-r--r-----); run: chmod 600"),
        ("uid=0,mode=0400", "cannot be read (Permission denied); let user 1000 read it"),
    ],
)
async def test_a_token_that_is_missing_or_not_private_ends_it_with_a_remedy(image: str, secret: str, said: str) -> None:
    async with running(image, secret) as container:
        await container.wait_for(f"error: /run/secrets/token {said}")
        assert await container.wait() == 78
