"""The protocol era of a server: how it is negotiated, remembered, and negotiated again."""

from __future__ import annotations

import json
import sys
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import pytest
import trio
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client import advertise
from mcp.server.mcpserver import MCPServer

from mcp_actors import Callbacks, ConnectFailed, Http, InProcess, ServerConfig, Stdio, open_servers
from mcp_actors.servers._eras import ASK, LEGACY, QUIRK, Era, era_after_failure
from mcp_actors.servers.connection import _negotiation
from mcp_actors.servers.connection._negotiation import OWN_CLIENT
from mcp_actors.transports._exchange import Receive
from mcp_actors.transports._request_table import Json, RequestUnderWay
from mcp_actors.transports.stdio._link import StdioLink
from tests.idle_clock import IdleClock

from . import wire_server
from .faults.http_faults import FaultyServer, faulty_server
from .fleet import kill
from .groups import AT_ONCE, BOUND, NEVER, Fault, pids_in
from .links import text_of
from .processes import eventually, state_of
from .scripted_server import TOOLS, command

LATEST_LEGACY, MODERN = "2025-11-25", "2026-07-28"

PROBED = ["server/discover", "initialize"]


def auto(log: Path, *flags: str, **options: Any) -> ServerConfig:
    """Configure a scripted server of an unknown era."""
    program, args = command("--log-file", str(log), *flags)
    return ServerConfig(
        "a", Stdio(program, args), **{"restarts": AT_ONCE, "connect_timeout": BOUND, "stop_timeout": 0.5, **options}
    )


def messages(log: Path, method: str) -> list[dict[str, Any]]:
    """Return the messages of a method that the server has read."""
    read = [json.loads(line) for line in log.read_bytes().splitlines()]
    return [message for message in read if message.get("method") == method]


def negotiations(log: Path) -> list[list[str]]:
    """Return what each process of a server was sent before it was asked for its tools."""
    lines = [line.split()[0] for line in log.read_text().splitlines()]
    starts = [list(group) for is_start, group in groupby(lines, "start".__eq__) if not is_start]
    return [[line for line in start if line in ("server/discover", "initialize")] for start in starts]


@pytest.mark.parametrize(
    ("era", "version", "first", "later"),
    [
        ("legacy", LATEST_LEGACY, ["server/discover", "initialize"], ["initialize"]),
        ("modern", MODERN, ["server/discover"], []),
        ("both", MODERN, ["server/discover"], []),
    ],
)
async def test_a_server_is_asked_for_its_era_once(
    tmp_path: Path, era: str, version: str, first: list[str], later: list[str]
) -> None:
    """Neither a restart that was asked for nor one after a crash asks again."""
    log = tmp_path / "log"
    async with open_servers(auto(log, "--era", era)) as servers, servers.watch_events() as events:
        ref = servers["a"]
        await ref.restart()
        kill(ref)
        with trio.fail_after(BOUND):
            async for event in events:
                if getattr(event, "new", "") == "backoff":
                    break
            await ref.wait_ready()
        assert ref.info.protocol_version == version
        assert len(servers.tools) == len(TOOLS)
        assert text_of(await ref.call_tool("echo", {"text": "x"})) == "x"
    assert negotiations(log) == [first, later, later]


async def test_a_process_that_exits_at_discover_is_started_once_more_in_legacy(tmp_path: Path) -> None:
    """Within one connect; and the next one does not ask."""
    log = tmp_path / "log"
    config = auto(log, "--handshake", "--on-discover", "die", restarts=NEVER)
    async with open_servers(config, strict=True) as servers:
        assert servers["a"].info.protocol_version == LATEST_LEGACY
        assert servers["a"].statistics().incarnation == 1
        await servers["a"].restart()
        assert servers["a"].info.protocol_version == LATEST_LEGACY
    assert negotiations(log) == [["server/discover"], ["initialize"], ["initialize"]]


@pytest.mark.parametrize(
    ("before", "after", "flags", "version", "expected"),
    [
        ("legacy", "modern", (), MODERN, [PROBED, ["initialize", "server/discover"]]),
        ("modern", "legacy", (), LATEST_LEGACY, [["server/discover"], [], PROBED]),
        ("modern", "legacy", ("--handshake",), LATEST_LEGACY, [["server/discover"], [], PROBED]),
    ],
    ids=["upgraded", "downgraded to one that takes anything", "downgraded to one that insists on a handshake"],
)
async def test_an_era_that_does_not_fit_any_more_is_found_out_anew(
    tmp_path: Path, before: str, after: str, flags: tuple[str, ...], version: str, expected: list[list[str]]
) -> None:
    """The server is another version after a restart. A downgraded one fails the connect, and the next one asks."""
    log, era = tmp_path / "log", tmp_path / "era"
    era.write_text(before)
    async with open_servers(auto(log, "--era-file", str(era), *flags)) as servers:
        assert servers["a"].info.protocol_version != version
        era.write_text(after)
        await servers["a"].restart()
        with trio.fail_after(BOUND):
            await servers["a"].wait_state("ready")
        assert servers["a"].info.protocol_version == version
        assert text_of(await servers["a"].call_tool("echo", {"text": "x"})) == "x"
    assert negotiations(log) == expected


async def test_a_server_without_tools_is_asked_every_time(tmp_path: Path) -> None:
    """Nothing else would be sent to it, and that it was started does not mean that it serves."""
    log = tmp_path / "log"
    async with open_servers(auto(log, "--era", "modern", "--no-tools-capability")) as servers:
        await servers["a"].restart()
        assert servers["a"].info.protocol_version == MODERN
    assert negotiations(log) == [["server/discover"], ["server/discover"]]


@pytest.mark.parametrize("flags", [(), ("--ignore-eof", "--ignore-sigterm")], ids=["and leaves", "and does not leave"])
async def test_a_server_that_hangs_is_started_once_more_and_no_more(
    tmp_path: Path, flags: tuple[str, ...], idle_clock: IdleClock
) -> None:
    """Each process has its time, and the error is about the negotiation."""
    pids = tmp_path / "pids"
    flags = ("--never-answer", "--pid-file", str(pids), *flags)
    config = auto(tmp_path / "log", *flags, connect_timeout=20.0, startup_timeout=BOUND, stop_timeout=1.0)
    with pytest.raises(ConnectFailed, match=r"timed out after 20 s \(\w+\) while negotiating") as caught:
        async with open_servers(config, strict=True):
            raise AssertionError("it cannot be ready")
    assert caught.value.phase == "negotiate"
    assert [state_of(pid) for pid in pids_in(pids)] == ["gone"] * 2
    assert negotiations(tmp_path / "log") == [PROBED, ["initialize"]]


async def test_a_server_that_dies_before_it_reads_the_question_is_not_started_again(tmp_path: Path) -> None:
    """S2-10: it died of something else, and its error says what."""
    config = auto(tmp_path / "log", "--exit-at-start", "3", "--stderr", "no database", restarts=NEVER)
    async with open_servers(config) as servers:
        error = servers.errors["a"]
    assert isinstance(error, ConnectFailed)
    assert (error.phase, error.exit_code, error.stderr_tail) == ("negotiate", 3, "no database")
    # Elsewhere the system does not tell whether a pipe was read.
    assert len((tmp_path / "log").read_text().splitlines()) == (1 if sys.platform == "linux" else 2)


async def test_a_server_that_dies_before_it_is_sent_the_question_is_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S2-10: an empty pipe does not prove that the server has read anything."""
    ask = StdioLink.exchange

    async def late(self: StdioLink, request: RequestUnderWay, receive: Receive) -> Json:
        await eventually(lambda: self.lifeline.lost)
        return await ask(self, request, receive)

    monkeypatch.setattr(StdioLink, "exchange", late)
    async with open_servers(auto(tmp_path / "log", "--exit-at-start", "3", restarts=NEVER)) as servers:
        error = servers.errors["a"]
    assert isinstance(error, ConnectFailed)
    assert (error.phase, error.exit_code) == ("negotiate", 3)
    assert len((tmp_path / "log").read_text().splitlines()) == (1 if sys.platform == "linux" else 2)


async def test_a_server_that_dies_in_any_era_says_how_it_ended_last(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with open_servers(auto(log, "--on-discover", "die", "--die-on-list", restarts=NEVER)) as servers:
        error = servers.errors["a"]
    assert isinstance(error, ConnectFailed)
    assert (error.phase, error.exit_code) == ("list_tools", 7)
    assert negotiations(log) == [["server/discover"], ["initialize"]]


async def test_a_server_with_an_era_of_its_own_configuration_is_asked_what_it_can_do(tmp_path: Path) -> None:
    async with open_servers(auto(tmp_path / "log", "--era", "modern", protocol="2026-07-28")) as servers:
        assert len(servers.tools) == len(TOOLS)
        info = servers["a"].info
        assert (info.name, info.protocol_version) == ("scripted", MODERN)


@pytest.mark.parametrize(("era", "protocol"), [("legacy", "2026-07-28"), ("modern", "legacy")])
async def test_an_era_that_the_server_does_not_speak_is_an_error_that_says_what_to_do(
    tmp_path: Path, era: str, protocol: str
) -> None:
    async with open_servers(auto(tmp_path / "log", "--era", era, protocol=protocol, restarts=NEVER)) as servers:
        assert str(servers.errors["a"]).endswith(f"; if it does not support protocol={protocol!r}, use 'auto'")


@pytest.mark.parametrize(
    ("era", "protocol", "remedy"),
    [
        ("legacy", "auto", "upgrade"),
        ("legacy", "legacy", "upgrade"),
        ("modern", "auto", "upgrade"),
        ("modern", "2026-07-28", "use 'auto'"),
        ("modern", "legacy", "use 'auto'"),
    ],
)
async def test_a_server_that_speaks_no_known_version_has_failed_at_once(
    tmp_path: Path, era: str, protocol: str, remedy: str
) -> None:
    """B-04: it is started once, and not tried again later either."""
    log = tmp_path / "log"
    async with open_servers(auto(log, "--era", era, "--speaks", "1999-01-01", protocol=protocol)) as servers:
        error, status = servers.errors["a"], servers["a"].statistics()
        assert isinstance(error, ConnectFailed)
        assert (error.hopeless, error.phase) == (True, "negotiate")
        assert "'a'" in str(error)
        assert remedy in str(error)
        assert (status.state, status.restarts, status.retry_at) == ("failed", 0, None)
    assert len(negotiations(log)) == 1


async def test_a_server_in_this_process_is_reconnected_in_its_era() -> None:
    fault = Fault()
    async with open_servers(ServerConfig("a", InProcess(fault.server))) as servers:
        await servers["a"].restart()
        assert servers["a"].info.protocol_version == MODERN
        assert text_of(await servers["a"].call_tool("ping")) == "pong"


async def test_a_changed_configuration_is_asked_for_its_era_anew() -> None:
    """It may be another program, which has other capabilities and another name."""
    async with open_servers(ServerConfig("a", InProcess(MCPServer("before")))) as servers:
        assert (servers["a"].info.protocol_version, servers["a"].info.name) == (MODERN, "before")
        await servers.reload(ServerConfig("a", InProcess(MCPServer("after"))))
        await servers["a"].wait_ready()
        assert (servers["a"].info.protocol_version, servers["a"].info.name) == (MODERN, "after")


# --- Over HTTP, where nothing has to be started again ---------------------------------------------------------------


def asked(server: FaultyServer) -> list[str]:
    """Return what a server was sent to negotiate."""
    methods = [request.message["method"] for request in server.requests if request.method == "POST"]
    return [method for method in methods if method in PROBED]


@pytest.mark.parametrize(
    ("era", "expected"),
    [("legacy", [*PROBED, "initialize"]), ("modern", ["server/discover"])],
    ids=["legacy", "modern"],
)
async def test_a_server_is_asked_for_its_era_once_over_http_too(
    era: Literal["legacy", "modern"], expected: list[str]
) -> None:
    with faulty_server(era) as web:
        async with open_servers(ServerConfig("a", Http(web.url()))) as servers:
            await servers["a"].restart()
            assert servers["a"].state == "ready"
            assert (servers["a"].info.protocol_version == MODERN) == (era == "modern")
        assert asked(web) == expected


async def test_an_era_that_does_not_fit_any_more_is_found_out_anew_over_http_too() -> None:
    with faulty_server("modern") as web:
        async with open_servers(ServerConfig("a", Http(web.url()), restarts=AT_ONCE)) as servers:
            web.era = "legacy"
            await servers["a"].restart()
            with trio.fail_after(BOUND):
                await servers["a"].wait_state("ready")
            assert servers["a"].info.protocol_version != MODERN
        assert asked(web) == ["server/discover", *PROBED]


async def test_an_era_chosen_without_an_answer_is_logged_and_not_remembered_over_http_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """B-02: an answer is awaited for a while, and then a legacy session begins."""
    monkeypatch.setattr(_negotiation, "DISCOVER_TIMEOUT", 0.2)
    with faulty_server("legacy") as web:
        web.mute.add("server/discover")
        async with open_servers(ServerConfig("a", Http(web.url()))) as servers:
            assert servers["a"].state == "ready"
            assert [record for record in caplog.records if "protocol='legacy'" in record.getMessage()]
            monkeypatch.setattr(_negotiation, "DISCOVER_TIMEOUT", BOUND)
            web.mute.clear()
            web.era = "modern"
            await servers["a"].restart()
            assert servers["a"].info.protocol_version == MODERN
        assert asked(web) == [*PROBED, "server/discover"]


async def test_a_connect_after_an_initialize_without_an_answer_negotiates() -> None:
    """B-02: a gateway begins with ``initialize`` for a client that answers questions, and once is enough."""
    with faulty_server("modern") as web:
        web.mute.add("initialize")
        config = ServerConfig("a", Http(web.url()), restarts=AT_ONCE, connect="lazy", connect_timeout=0.5)
        async with open_servers(config) as servers:
            servers["a"]._record.next_connect.legacy_first = True
            with trio.fail_after(BOUND):
                await servers["a"].start()
                await servers["a"].wait_state("ready")
        assert asked(web) == ["initialize", "server/discover"]


# --- What is said in a legacy handshake -----------------------------------------------------------------------------


@pytest.mark.parametrize("able", [False, True])
async def test_a_process_is_sent_the_same_initialize_as_the_sdk_sends(tmp_path: Path, able: bool) -> None:
    """B-01: ``initialize`` is written here, so that it can be sent while another question is open."""

    async def never(*_: Any) -> Any:
        raise AssertionError("it does not ask")

    answers = Callbacks(sampling=never, elicitation=never, roots=never) if able else Callbacks()
    extensions = (advertise("org.example/a", {"b": 1}),) if able else ()
    program, args = wire_server.command("legacy", str(tmp_path / "ours"))
    async with open_servers(
        ServerConfig("a", Stdio(program, args), callbacks=answers, extensions=extensions), strict=True
    ):
        pass
    program, args = wire_server.command("legacy", str(tmp_path / "theirs"))
    given: dict[str, Any] = dict.fromkeys(("sampling_callback", "elicitation_callback", "list_roots_callback"), never)
    process = stdio_client(StdioServerParameters(command=program, args=list(args)))
    async with Client(process, mode="legacy", client_info=OWN_CLIENT, extensions=extensions, **(given if able else {})):
        pass
    [ours], [theirs] = (messages(tmp_path / side, "initialize") for side in ("ours", "theirs"))
    assert {**ours, "id": 0} == {**theirs, "id": 0}


# --- What is remembered of a failure --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("remembered", "era", "answered", "next_time"),
    [
        (None, ASK, False, None),
        (None, LEGACY, False, None),
        (None, QUIRK, False, QUIRK),
        (None, QUIRK, True, None),
        (LEGACY, LEGACY, False, None),
        (QUIRK, QUIRK, False, None),
        (LEGACY, LEGACY, True, None),
        (Era(MODERN), Era(MODERN), False, None),
    ],
)
def test_the_era_that_the_next_connect_begins_with_after_a_failure(
    remembered: Era | None, era: Era, answered: bool, next_time: Era | None
) -> None:
    """A remembered era that failed is forgotten; a legacy attempt that was due is made once more."""
    assert era_after_failure(era, remembered=remembered, answered=answered) == next_time
