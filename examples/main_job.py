"""The main job: real MCP servers, one that cannot start, and one that is killed.

The README says how to run it. Every step is shown and checked. The processes are those that the operating
system lists, not the library; as soon as a step is not as it should be, the program ends with an error.

Prints::

    1. Prepare: a git repository with one commit, and a weather server of our own
       repository  ...
       weather     http://127.0.0.1:.../mcp, process ...

    2. Start: three servers side by side, and one whose command does not exist
       time     ready after ... s: mcp-time ..., process ...
       git      ready after ... s: mcp-git ..., process ...
       weather  ready after ... s: weather 1.0, process ...
       missing  failed after ... s: server 'missing': command 'mcp-server-missing' not found; install it or ...
       All were settled after ... s, which is when the slowest was.

    3. Tools: what they offer, under names of their own
       mcp__time__get_current_time ...
       mcp__git__git_status ...
       mcp__weather__forecast   ...

    4. Calls: three to each server, all at the same time
       time     get_current_time  ... s  Europe/Paris, ...
       git      git_log           ... s  Commit history: ...
       weather  forecast          ... s  fog in Oslo
       ...
       All 9 took ... s; one by one they would have taken up to ... s.

    5. Kill: the process of the server 'time', while it is idle
       kill -9 ...
       after ... ms: ready -> backoff, ...
       after ... ms: backoff -> connecting, connect number 2
       after ... ms: connecting -> ready, connected, 2 tools
       No call had been made until then. What had happened: server 'time': its process was killed by SIGKILL ...
       Process ... is gone, process ... has taken its place, and serves: Asia/Tokyo, ...
       The others noticed nothing: git, weather.

    6. Stop: leave the block
       time, git: stopped after ... s, their processes are gone.
       weather: disconnected; its process is ours to end: kill -9 ...
       No process is left of all that were started.

    All steps were as they should be, in ... s.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import trio
from _steps import SCRIPTS, Show, StepFailed, check

from mcp_actors import (
    Http,
    ServerConfig,
    ServerGroup,
    ServerRef,
    StateChanged,
    Stdio,
    open_servers,
)
from mcp_actors.kernel import Event, RequestStarted

BOUND: Final = 60.0
"""Seconds for everything. It takes about three; a machine that is busy with other things may need more."""

UNWINDING: Final = 20.0
"""Seconds more until a run that does not even react to its deadline is ended the hard way."""

INTERRUPTED: Final = 130
"""The exit code of a program that was ended by Ctrl-C."""

WEATHER: Final = Path(__file__).parent / "servers" / "weather_http.py"

AUTHOR: Final = ["-c", "user.name=Demo", "-c", "user.email=demo@example.com"]
COMMIT: Final = [*AUTHOR, "-c", "commit.gpgsign=false", "commit", "-m", "Say hello"]


# --- 1. Prepare -----------------------------------------------------------------------------------------------------


@contextmanager
def temporary_repository() -> Generator[Path]:
    """Make a git repository with one commit, whatever the user's own configuration of git is."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("GIT_")
    }
    environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    with tempfile.TemporaryDirectory(prefix="mcp_actors-") as folder:
        repository = Path(folder).resolve()
        (repository / "README").write_text("Hello.\n")
        for arguments in (["init"], ["add", "README"], COMMIT):
            command = ["git", "-C", str(repository), *arguments]
            git = subprocess.run(
                command,
                env=environment,
                capture_output=True,
                text=True,
                timeout=BOUND / 2,
            )
            check(
                git.returncode == 0,
                f"{' '.join(command)} should work, but says: {git.stderr.strip()}",
            )
        yield repository


@asynccontextmanager
async def weather_server() -> AsyncGenerator[tuple[trio.Process, str]]:
    """Run the HTTP server as a process of its own, and yield it with its URL. At the end it is killed."""
    process = await trio.lowlevel.open_process(
        [sys.executable, str(WEATHER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with process.stdin, process.stdout:
            port = (await process.stdout.receive_some()).decode().strip()
            check(
                port.isdigit(),
                f"the weather server should print its port, not {port!r}",
            )
            yield process, f"http://127.0.0.1:{port}/mcp"
    finally:
        await kill(process)


async def kill(process: trio.Process) -> None:
    """End a process now, and wait until it is gone."""
    process.kill()
    with trio.CancelScope(shield=True):
        await process.wait()


# --- 2. Start -------------------------------------------------------------------------------------------------------


def configure(repository: Path, url: str) -> list[ServerConfig]:
    """Say what to connect to."""
    return [
        ServerConfig("time", Stdio(SCRIPTS / "mcp-server-time")),
        ServerConfig(
            "git", Stdio(SCRIPTS / "mcp-server-git", ["--repository", str(repository)])
        ),
        ServerConfig("weather", Http(url)),
        ServerConfig("missing", Stdio("mcp-server-missing")),
    ]


def show_start(show: Show, servers: ServerGroup, started: float) -> None:
    """Print which servers are ready, which failed, and why."""
    for name, server in servers.items():
        after = (
            f"{name:8} {server.state} after {server.statistics().since - started:.2f} s"
        )
        if server in servers.active:
            show.line(
                f"{after}: {server.info.name} {server.info.version}, process {show.process_of(name)}"
            )
        else:
            show.line(f"{after}: {servers.errors[name]}")
    check(
        [server.name for server in servers.active] == ["time", "git", "weather"],
        "three servers should be ready",
    )
    check(
        [server.name for server in servers.failed] == ["missing"],
        "one server should have failed",
    )
    show.line(
        f"All were settled after {trio.current_time() - started:.2f} s, which is when the slowest was."
    )


# --- 3. Tools -------------------------------------------------------------------------------------------------------


def show_tools(show: Show, servers: ServerGroup) -> None:
    """Print the tools of the servers."""
    for tool in servers.tools:
        show.line(
            f"{tool.public_name:30} {textwrap.shorten(tool.description or '', 70)}"
        )
    offering = {tool.server for tool in servers.tools}
    check(
        offering == {"time", "git", "weather"},
        f"all three should offer tools, not only {offering}",
    )


# --- 4. Calls -------------------------------------------------------------------------------------------------------


async def call(
    server: ServerRef, tool: str, arguments: dict[str, Any]
) -> tuple[str, float]:
    """Call a tool; return what it said, in short, and how long that took."""
    started = trio.current_time()
    result = await server.call_tool(tool, arguments)
    text = " ".join(getattr(part, "text", "") for part in result.content)
    check(
        not result.is_error,
        f"{server.name!r} should have answered {tool}, but failed: {text}",
    )
    if text.startswith("{"):
        text = ", ".join(str(value) for value in json.loads(text).values())
    return textwrap.shorten(text, 72), trio.current_time() - started


async def make_calls(show: Show, servers: ServerGroup, repository: Path) -> None:
    """Several calls to each server, all at the same time."""
    git = {"repo_path": str(repository)}
    calls: list[tuple[str, str, dict[str, Any]]] = [
        *(
            ("time", "get_current_time", {"timezone": zone})
            for zone in ("Europe/Paris", "Asia/Tokyo", "America/Lima")
        ),
        ("git", "git_log", git),
        ("git", "git_status", git),
        ("git", "git_branch", {**git, "branch_type": "local"}),
        *(
            ("weather", "forecast", {"city": city})
            for city in ("Oslo", "Hanoi", "Quito")
        ),
    ]
    answers: dict[int, tuple[str, float]] = {}

    async def make(number: int) -> None:
        name, tool, arguments = calls[number]
        answers[number] = await call(servers[name], tool, arguments)

    started = trio.current_time()
    async with trio.open_nursery() as nursery:
        for number in range(len(calls)):
            nursery.start_soon(make, number)
    together = trio.current_time() - started
    for number, (name, tool, _) in enumerate(calls):
        text, seconds = answers[number]
        show.line(f"{name:8} {tool:17} {seconds:.2f} s  {text}")
    one_by_one = sum(seconds for _, seconds in answers.values())
    show.line(
        f"All {len(calls)} took {together:.2f} s; one by one they would have taken up to {one_by_one:.2f} s."
    )
    check(together < one_by_one, "calls should run at the same time")


# --- 5. Kill --------------------------------------------------------------------------------------------------------


async def kill_one(show: Show, servers: ServerGroup) -> None:
    """Kill a server that is idle: that is noticed without a call, and another process takes its place."""
    old = show.process_of("time")
    async with servers.watch_events() as events:
        os.kill(old, signal.SIGKILL)
        killed = trio.current_time()
        show.line(f"kill -9 {old}")
        async for event in events:
            check(
                not isinstance(event, RequestStarted),
                "no call should have been made yet",
            )
            if show_change(show, event, killed) == "ready":
                break
    show.line(
        f"No call had been made until then. What had happened: {servers['time'].statistics().last_error}"
    )
    new = show.process_of("time")
    check(new != old, f"another process than {old} should serve now")
    show.check_gone(old)
    text, _ = await call(
        servers["time"], "get_current_time", {"timezone": "Asia/Tokyo"}
    )
    show.line(
        f"Process {old} is gone, process {new} has taken its place, and serves: {text}"
    )
    undisturbed = [
        server.name for server in servers.active if server.statistics().restarts == 0
    ]
    check(
        undisturbed == ["git", "weather"],
        "the other servers should not have been disturbed",
    )
    show.line(f"The others noticed nothing: {', '.join(undisturbed)}.")


def show_change(show: Show, event: Event, since: float) -> str | None:
    """Show an event if it says that a server's state has changed; return the new state."""
    if not isinstance(event, StateChanged):
        return None
    delay = event.time - since
    show.line(
        f"after {1000 * delay:.1f} ms: {event.old} -> {event.new}, {event.reason}"
    )
    check(
        event.old != "ready" or delay < 1,
        "the death of a process should be noticed within a second",
    )
    check(event.new != "failed", "the server should have come back")
    return event.new


# --- All together ---------------------------------------------------------------------------------------------------


async def main_job(show: Show, repository: Path) -> None:
    """Do the main job."""
    async with weather_server() as (weather, url):
        show.line(f"weather     {url}, process {weather.pid}")

        show.heading(
            "Start: three servers side by side, and one whose command does not exist"
        )
        started = trio.current_time()
        async with open_servers(*configure(repository, url)) as servers:
            show_start(show, servers, started)
            show.heading("Tools: what they offer, under names of their own")
            show_tools(show, servers)
            show.heading("Calls: three to each server, all at the same time")
            await make_calls(show, servers, repository)
            show.heading("Kill: the process of the server 'time', while it is idle")
            await kill_one(show, servers)
            running = [show.process_of("time"), show.process_of("git")]
            show.heading("Stop: leave the block")
            stopping = trio.current_time()

        show.check_gone(*running)
        show.line(
            f"time, git: stopped after {trio.current_time() - stopping:.2f} s, their processes are gone."
        )
        await kill(weather)
        show.line(
            f"weather: disconnected; its process is ours to end: kill -9 {weather.pid}"
        )
    await show.wait_nothing_left()
    show.line("No process is left of all that were started.")


async def in_time(show: Show, repository: Path) -> float:
    """Do the main job within its bound; return how long it took."""
    started = trio.current_time()
    try:
        with trio.fail_after(BOUND):
            await main_job(show, repository)
    except trio.TooSlowError:
        raise StepFailed(f"it should have been done within {BOUND:g} seconds") from None
    return trio.current_time() - started


def first_of(exc: BaseException) -> BaseException:
    """Return an exception itself, or the first one of a nursery's group."""
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return exc


def main() -> int:
    """Run the demo; return the exit code."""
    show = Show()
    try:
        show.heading(
            "Prepare: a git repository with one commit, and a weather server of our own"
        )
        with temporary_repository() as repository:
            show.line(f"repository  {repository}")
            seconds = trio.run(in_time, show, repository)
    except (Exception, KeyboardInterrupt, BaseExceptionGroup) as exc:
        cause = first_of(exc)
        print(
            f"\nFAILED in step {show.step}: {str(cause) or type(cause).__name__}",
            file=sys.stderr,
        )
        for process in show.family.members():
            print(f"left behind: {process}", file=sys.stderr)
        return INTERRUPTED if isinstance(cause, KeyboardInterrupt) else 1
    print(f"\nAll steps were as they should be, in {seconds:.1f} s.")
    return 0


if __name__ == "__main__":
    faulthandler.dump_traceback_later(BOUND + UNWINDING, exit=True)
    sys.exit(main())
