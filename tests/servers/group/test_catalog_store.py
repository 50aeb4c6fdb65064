"""Listed tools are remembered for the next run: when they are written, and what happens if they cannot be."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from mcp.types import Tool
from trio.testing import MockClock

from mcp_actors import (
    ConfigError,
    Http,
    InProcess,
    ServerConfig,
    ServerGroup,
    Sse,
    Stdio,
    ToolNotFound,
    ToolsChanged,
    open_servers,
)
from mcp_actors.catalog import _pins
from mcp_actors.catalog._pins import CatalogStore, RememberedCatalog
from mcp_actors.config import ConfigValue, Secret, load_config
from mcp_actors.kernel import Crashed
from mcp_actors.servers import ToolsDiffer
from mcp_actors.servers._admission import fingerprint, launch_pin
from mcp_actors.servers.group import _memory
from mcp_actors.servers.group._memory import FLUSH_WAIT, LOAD_WAIT

from ...calls import calls_in
from ...messages import Said
from ..changing import shown
from ..fleet import http_server
from ..groups import BOUND, LATER, Events, Fault, reach, server, state
from ..links import MARGIN, text_of
from ..processes import eventually
from ..remembering import Server, change, deferred, remembered
from ..scripted_server import TOOLS, command
from ..sources.written import no_descriptors


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def files(folder: Path) -> list[Path]:
    """All files in a folder and below."""
    return [path for path in folder.rglob("*") if path.is_file()]


async def test_listed_tools_are_remembered_as_they_were_on_the_wire(tmp_path: Path) -> None:
    """S3-06: tools are remembered, and at once: the program may not come to its end."""
    async with open_servers(server("a"), catalog_store=tmp_path) as group:
        await eventually(lambda: bool(files(tmp_path)) and files(tmp_path)[0].suffix == ".json")
        listed = await group["a"].list_tools()
    [path] = files(tmp_path)
    content = json.loads(path.read_text())
    assert content["server"] == "a"
    assert tuple(Tool.model_validate(tool) for tool in content["tools"]) == listed
    assert content["tools"][0].keys() == {"name", "description", "inputSchema"}


async def test_an_open_that_does_not_wait_needs_no_gate(tmp_path: Path) -> None:
    """Without one, what is remembered is only shown of servers that could not be connected."""
    a = Server(tmp_path)
    await a.run_once()
    events = Events()
    async with open_servers(a.config(), catalog_store=a.store, observers=[events]) as group:
        assert deferred(group) == {"a": False}
    assert len(events.of(ToolsChanged)) == 1  # emitted even if the list equals the remembered one
    a.behave("--exit-at-start", "3")
    async with open_servers(a.config(restarts=LATER), catalog_store=a.store) as group:
        assert (state(group, "a"), deferred(group)) == ("backoff", {"a": True})
        a.behave()
        await group.reconnect()
        assert deferred(group) == {"a": False}


async def test_a_server_that_has_listed_once_shows_nothing_older(tmp_path: Path) -> None:
    """S1-23: also while it is connected anew."""
    a = Server(tmp_path)
    await a.run_once("--tools", "1")
    async with open_servers(a.config(restarts=LATER), catalog_store=a.store) as group:
        assert {tool.name for tool in group.tools} == set(TOOLS)
        a.behave("--exit-at-start", "3")
        await group.reconnect("a")
        assert {(tool.name, tool.deferred, tool.available) for tool in group.tools} == {
            (name, False, False) for name in TOOLS
        }


async def test_an_empty_list_of_tools_is_remembered_too(tmp_path: Path) -> None:
    a = Server(tmp_path)
    await a.run_once("--no-tools-capability")
    assert list(remembered(a.file())) == []
    a.hold()
    with trio.fail_after(BOUND):
        async with open_servers(a.config(), catalog_store=a.store, start_gate=0) as group:
            assert (state(group, "a"), len(group.tools)) == ("connecting", 0)


async def test_a_server_that_could_not_be_connected_changes_nothing_that_is_remembered(tmp_path: Path) -> None:
    a = Server(tmp_path)
    await a.run_once()
    before = a.file().read_bytes()
    a.behave("--die-on-list")
    async with open_servers(a.config(restarts=LATER), catalog_store=a.store):
        pass
    assert a.file().read_bytes() == before


async def test_groups_that_are_open_at_the_same_time_share_what_is_remembered(tmp_path: Path) -> None:
    configs = [server(name) for name in "abc"]
    async with open_servers(*configs, catalog_store=tmp_path), open_servers(*configs, catalog_store=str(tmp_path)):
        pass
    assert sorted(json.loads(path.read_text())["server"] for path in files(tmp_path)) == ["a", "b", "c"]


async def test_true_is_the_directory_of_the_platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    async with open_servers(server("a"), catalog_store=True):
        pass
    [path] = files(tmp_path)
    assert path.parent == tmp_path / "mcp-actors" / "catalogs"


@pytest.mark.parametrize("none", [None, False])
async def test_without_a_store_nothing_is_remembered(
    none: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    async with open_servers(server("a"), catalog_store=none):
        pass
    assert files(tmp_path) == []


async def test_a_server_in_this_process_is_not_remembered(tmp_path: Path) -> None:
    async with open_servers(Fault().config(), catalog_store=tmp_path, start_gate=0) as group:
        assert state(group, "here") == "ready"
    assert files(tmp_path) == []


@pytest.mark.parametrize("store", ["", 3, b"cache", object()])
async def test_a_store_that_is_not_a_directory_is_refused(store: Any) -> None:
    with pytest.raises(ConfigError, match=r"catalog_store=.* is not a directory; pass a path, or True"):
        async with open_servers(server("a"), catalog_store=store):
            pytest.fail("the block must not run")


# --- pins -----------------------------------------------------------------------------------------------------------


def names(group: ServerGroup) -> set[str]:
    return {tool.name for tool in group.tools}


async def test_the_next_run_judges_tools_by_the_accepted_ones(tmp_path: Path) -> None:
    """A tool that was added between two runs is hidden until it is approved, also as a deferred one."""
    a = Server(tmp_path)
    config = a.config(on_tool_change="block")
    async with open_servers(config, catalog_store=a.store) as group:
        assert names(group) == set(TOOLS)
    for _ in range(2):
        a.behave("--tools", "1")
        async with open_servers(config, catalog_store=a.store) as group:
            assert (deferred(group), names(group)) == ({"a": False}, set(TOOLS))
            assert group["a"].tool_changes.added == ("tool_0",)
            with pytest.raises(ToolNotFound, match=r"tool 'tool_0' was added or changed since its tools were accepted"):
                await group["a"].call_tool("tool_0")
        a.hold()
        async with open_servers(config, catalog_store=a.store, start_gate=0) as group:
            assert (deferred(group), names(group)) == ({"a": True}, set(TOOLS))
    a.behave("--tools", "1")
    async with open_servers(config, catalog_store=a.store) as group:
        await group["a"].approve_tools(group["a"].tool_changes)
        assert names(group) == {*TOOLS, "tool_0"}
    async with open_servers(config, catalog_store=a.store) as group:
        assert not group["a"].tool_changes
        assert names(group) == {*TOOLS, "tool_0"}


@pytest.mark.parametrize("held", [False, True])
async def test_a_new_configuration_is_judged_by_what_an_earlier_run_accepted_of_it(tmp_path: Path, held: bool) -> None:
    """Unless the server has accepted tools already: these go on counting."""
    a = Server(tmp_path)
    config = a.config(on_tool_change="block")
    async with open_servers(config, catalog_store=a.store):
        pass
    a.behave("--tools", "1")
    before = server("a", *(["--tools", "2"] if held else []), on_tool_change="block" if held else "allow")
    async with open_servers(before, catalog_store=a.store) as group:
        await group.replace(config)
        await group["a"].wait_ready()
        assert names(group) == (set() if held else set(TOOLS))
        assert group["a"].tool_changes.added == (() if held else ("tool_0",))
    if not held:
        async with open_servers(config, catalog_store=a.store) as group:
            assert names(group) == set(TOOLS)


async def test_an_approval_before_the_server_is_connected_is_remembered(tmp_path: Path) -> None:
    a = Server(tmp_path)
    config = a.config(on_tool_change="block")
    for flags in ((), ("--tools", "1")):
        a.behave(*flags)
        async with open_servers(config, catalog_store=a.store):
            pass
    a.hold()
    async with open_servers(config, catalog_store=a.store, start_gate=0) as group:
        await group["a"].approve_tools(group["a"].tool_changes)
        assert (deferred(group), names(group)) == ({"a": True}, {*TOOLS, "tool_0"})
    async with open_servers(config, catalog_store=a.store, start_gate=0) as group:
        assert (deferred(group), names(group)) == ({"a": True}, {*TOOLS, "tool_0"})


async def test_static_tools_are_not_remembered_as_listed(tmp_path: Path) -> None:
    a = Server(tmp_path)
    declared = Tool(name="echo", input_schema={"type": "object"})
    a.behave("--error-on-list")
    async with open_servers(a.config(static_tools=(declared,)), catalog_store=a.store) as group:
        assert (state(group, "a"), names(group)) == ("degraded", {"echo"})
    assert not a.store.exists()


# --- credentials ----------------------------------------------------------------------------------------------------


async def test_no_credential_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3-25: neither of a process nor of an HTTP server, and no name of a file is made of one."""
    monkeypatch.setenv("STORE_TOKEN", "s3cret-of-the-environment")
    program, args = command()
    env: dict[str, ConfigValue] = {
        "A": "s3cret-text",
        "B": Secret("s3cret-hidden"),
        "C": lambda: "s3cret-call",
        "D": "${STORE_TOKEN}",
    }
    stdio = ServerConfig("a", Stdio(program, args, env=env), protocol="legacy", required=True)
    with http_server() as (port, _):
        url = f"http://127.0.0.1:{port}/mcp?key=s3cret-query"
        http = ServerConfig("b", Http(url, headers={"X-Key": "s3cret-header"}, auth="s3cret-bearer"), required=True)
        async with open_servers(stdio, http, catalog_store=tmp_path):
            pass
    paths = files(tmp_path)
    assert len(paths) == 2
    assert not any("s3cret" in path.name + path.read_text() for path in paths)


def described(transport: Stdio | Http | Sse, name: str = "a") -> str:
    found = fingerprint(ServerConfig(name, transport))
    assert found is not None
    return found


def test_a_fingerprint_does_not_depend_on_secrets() -> None:
    """S3-25: so a secret cannot be found by trying."""
    assert len(
        {
            described(Stdio("x", ["--token", secret, f"--key={secret}"], env={"KEY": secret}))
            for secret in ("s3cret", "another", "${KEY}")
        }
    ) == len(
        {
            described(Http(f"https://me:{secret}@host/mcp?key={secret}", headers={"X-Key": secret}))
            for secret in ("s3cret", "another")
        }
    )
    bearers = ("s3cret", Secret("another"), lambda: "a third")
    assert len({described(Http("https://host/mcp", auth=bearer)) for bearer in bearers}) == 1


def test_a_fingerprint_depends_on_everything_else() -> None:
    stdio, url = Stdio("x", ["y"]), "https://host/mcp"
    different = [
        described(stdio),
        described(stdio, "b"),
        described(Stdio("y", ["y"])),
        described(Stdio("x", ["z"])),
        described(Stdio("x", ["y", "z"])),
        described(Stdio("x", ["y"], cwd="/")),
        described(Stdio("x", ["y"], env={"A": ""})),
        described(Stdio("x", ["y"], env_from=["A"])),
        described(Http(url)),
        described(Sse(url)),
        described(Http(url + "/")),
        described(Http(url, headers={"A": ""})),
        described(Http(url, auth="token")),
    ]
    assert len(set(different)) == len(different)
    assert described(Stdio("x", ["y"], env={"A": "", "B": ""})) == described(Stdio("x", ["y"], env={"B": "", "A": ""}))
    assert described(Http(url, headers={"a": ""})) == described(Http(url, headers={"A": ""}))
    assert fingerprint(ServerConfig("a", InProcess(object()))) is None  # type: ignore[arg-type]  # not a server of the SDK


def test_tools_of_a_server_from_a_file_are_stored_under_that_file() -> None:
    """A server in no file is filed differently, because any number of programs may use its name."""
    one, other = Stdio("x", ["y"]), Stdio("z")
    in_file = [ServerConfig("a", transport, source="/home/me/.mcp.json") for transport in (one, other)]
    assert fingerprint(in_file[0]) == fingerprint(in_file[1])
    assert launch_pin(in_file[0]) != launch_pin(in_file[1])
    assert len({fingerprint(config) for config in (*in_file, ServerConfig("a", one, source="/elsewhere"))}) == 2
    assert fingerprint(ServerConfig("a", one, source="settings")) == described(one)
    assert fingerprint(ServerConfig("a", InProcess(object()), source="/home/me/.mcp.json")) is None  # type: ignore[arg-type]  # not a server of the SDK


def entry(path: Path, *flags: str, policy: str) -> Path:
    """Write a configuration file in which the server ``files`` is started with these flags."""
    program, args = command(*flags)
    server = {"command": program, "args": list(args), "mcp_actors": {"on_tool_change": policy}}
    path.write_text(json.dumps({"mcpServers": {"files": server}}))
    return path


@pytest.mark.parametrize("policy", ["allow", "warn", "block"])
async def test_a_file_that_starts_something_else_under_the_same_name_is_noticed(
    policy: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also if what it lists is the same, down to the last letter."""
    path, store, events = tmp_path / ".mcp.json", tmp_path / "store", Events()
    async with open_servers(entry(path, policy=policy), catalog_store=store) as group:
        assert len(group.tools) == len(TOOLS)
    async with open_servers(path, catalog_store=store) as group:
        assert not group["files"].tool_changes
    assert not warnings(caplog)
    entry(path, "--name", "another", policy=policy)
    async with open_servers(path, catalog_store=store, observers=[events]) as group:
        assert len(group.tools) == (0 if policy == "block" else len(TOOLS))
        assert [event.identity_changed for event in events.of(ToolsDiffer)] == [True] * (policy != "allow")
        if policy == "block":
            assert group["files"].tool_changes.identity_changed
            await group["files"].approve_tools(group["files"].tool_changes)
            assert len(group.tools) == len(TOOLS)
    if policy != "allow":
        [line] = warnings(caplog)
        assert line.startswith("server 'files': tools differ from the accepted ones; its command or URL has changed")
        assert f"(see {path})" in line
    async with open_servers(path, catalog_store=store) as group:
        assert len(group.tools) == len(TOOLS)
        assert not group["files"].tool_changes
    assert len(warnings(caplog)) == (policy != "allow")
    assert len(files(store)) == 1


async def test_tools_of_another_command_are_not_shown_for_this_one(tmp_path: Path) -> None:
    path, store = tmp_path / ".mcp.json", tmp_path / "store"
    async with open_servers(entry(path, "--tools", "1", policy="allow"), catalog_store=store):
        pass
    entry(path, "--tools", "2", policy="allow")
    loaded = load_config(path)
    lazy = [attrs.evolve(config, connect="lazy") for config in loaded.servers]
    async with open_servers(*lazy, catalog_store=store) as group:
        assert not group.tools


async def test_programs_that_share_a_store_do_not_see_each_other_s_servers_as_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each has a server of the same name, in a file of its own, or made by itself."""
    store, options = tmp_path / "store", {"policy": "block"}
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    one, two = (
        entry(tmp_path / "one" / "x.json", **options),
        entry(tmp_path / "two" / "x.json", "--name", "b", **options),
    )
    made = [server("files", "--name", name, on_tool_change="block") for name in ("c", "d")]
    for _ in range(2):
        for source in [one, two]:
            async with open_servers(source, catalog_store=store) as group:
                assert len(group.tools) == len(TOOLS)
        for config in made:
            async with open_servers(config, catalog_store=store) as group:
                assert len(group.tools) == len(TOOLS)
    assert not warnings(caplog)
    assert len(files(store)) == 4


async def test_a_server_that_is_added_shows_what_is_remembered_of_it(tmp_path: Path) -> None:
    """S3-23: a server that was removed leaves its file, and those of the others, as they are."""
    a, longer = Server(tmp_path), Server(tmp_path, "a_b")
    async with open_servers(a.config(), longer.config(), catalog_store=a.store) as group:
        await group["a"].wait_ready()
    files = {path: path.read_bytes() for path in a.store.rglob("*.json")}
    assert len(files) == 2
    async with open_servers(longer.config(connect="lazy"), catalog_store=a.store) as group:
        ref = await group.add(a.config(connect="lazy"))
        assert {(tool.server, tool.deferred) for tool in group.tools} == {("a", True), ("a_b", True)}
        await group.remove("a")
        assert {(tool.server, tool.deferred) for tool in group.tools} == {("a_b", True)}
        ref = await group.add(a.config())
        assert ref.state == "ready"
        assert not any(tool.deferred for tool in group.tools.of("a"))
    assert {path: path.read_bytes() for path in a.store.rglob("*.json")} == files


async def test_a_group_removes_outdated_files_of_the_store(tmp_path: Path) -> None:
    old = tmp_path / f"{'0' * 64}.json"
    old.write_text("{}")
    os.utime(old, (0, 0))
    async with open_servers(server("a"), catalog_store=tmp_path):
        await eventually(lambda: not old.exists())


def test_a_fingerprint_stays_from_version_to_version() -> None:
    """Else every release would forget everything."""
    known = "79f03bdb89fa00053346a52a0bd62461f5cad6f0b17f27d1fefa20e8fba74f53"
    assert described(Stdio("uvx", ["mcp-server-time"])) == known


# --- what goes wrong ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("judged", [True, False])
def test_only_tools_whose_changes_count_are_hashed_when_their_file_is_read(tmp_path: Path, judged: bool) -> None:
    """They are judged in one step of the event loop; the hashes of others may never be needed."""
    store, read = CatalogStore(tmp_path), list[tuple[str, Any]]()
    tools = ({"name": "one", "inputSchema": {}}, {"name": "two", "inputSchema": {}})
    store.save("0", RememberedCatalog(server="a", tools=tools))
    _memory._load_all(store, "mcp__{server}__{tool}", [("a", "0", judged)], read)
    [(_, known)] = read
    calls, pins = calls_in(lambda: [tool.pin for tool in known.listed])
    assert len(set(pins)) == 2
    assert (calls <= 2) == judged


async def test_a_directory_that_takes_nothing_changes_no_state(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """S3-22: a failure to remember is logged and changes no state of a server."""
    (tmp_path / "file").write_text("")
    async with open_servers(server("a"), catalog_store=tmp_path / "file" / "store") as group:
        assert text_of(await group.call_tool("mcp__a__add", {"a": 40, "b": 2})) == "42"
        assert (group["a"].state, group.failed) == ("ready", ())
    unread, failed, not_remembered = warnings(caplog)
    assert "failed: Not a directory after" in unread
    assert failed.startswith(f"catalog_store: writing to {tmp_path / 'file' / 'store'} has failed and is tried again: ")
    assert not_remembered.endswith("failed; the tools of these servers are not remembered: a")


@pytest.mark.parametrize("harm", ["damaged", "no tool"])
async def test_an_unusable_file_is_treated_as_missing(
    harm: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """S3-22: it is named, its server is waited for, and the file is replaced."""
    a = Server(tmp_path)
    await a.run_once()
    if harm == "damaged":
        a.file().write_text("{")
    else:
        change(a.file(), lambda content: content["tools"].append({"name": "x", "inputSchema": "none"}))
    async with open_servers(a.config(), catalog_store=a.store, start_gate=0) as group:
        assert deferred(group) == {"a": False}
    [warning] = warnings(caplog)
    assert str(a.file()) in warning
    assert "damaged" in warning
    assert set(remembered(a.file())) == set(TOOLS)


async def test_a_listing_that_cannot_be_serialised_changes_no_state(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3-22: whatever goes wrong with it."""

    def broken(tool: Tool, **options: Any) -> dict[str, Any]:
        raise ValueError("cannot be serialized")

    monkeypatch.setattr(Tool, "model_dump", broken)
    async with open_servers(server("a"), catalog_store=tmp_path):
        pass
    assert warnings(caplog) == ["server 'a': its tools could not be written to the catalog_store"]
    assert files(tmp_path) == []


async def test_a_store_that_always_fails_does_not_affect_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C-21: it is tried again, and its actor does not crash."""

    def broken(*_: object) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(_memory, "_save", broken)
    events = Events()
    async with open_servers(server("a"), catalog_store=tmp_path, observers=[events]) as group:
        await eventually(lambda: "catalog_store" in group.errors)
        assert text_of(await group.call_tool("mcp__a__add", {"a": 40, "b": 2})) == "42"
    assert not events.of(Crashed)


@pytest.fixture
def stuck() -> Iterator[threading.Event]:
    """Blocks the thread of a file system that hangs."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize("job", ["_by_size", "_load"])
async def test_a_file_system_that_hangs_delays_a_start_by_its_bound_only(
    job: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    mock_clock: MockClock,
    stuck: threading.Event,
    said: Said,
) -> None:
    def hang(*_: object) -> None:
        # Not before, or the clock would jump over what other threads do.
        trio.from_thread.run_sync(setattr, mock_clock, "autojump_threshold", 0)
        stuck.wait()

    monkeypatch.setattr(_memory, "LOAD_WAIT", LOAD_WAIT)
    monkeypatch.setattr(_memory, "FLUSH_WAIT", FLUSH_WAIT)
    monkeypatch.setattr(_memory, "fingerprint", lambda _: "0" * 64)  # a server in this process has none
    monkeypatch.setattr(_memory, job, hang)
    began = trio.current_time()
    async with open_servers(Fault().config(), catalog_store=tmp_path) as group:
        assert trio.current_time() == began + LOAD_WAIT
        assert state(group, "here") == "ready"
        left = trio.current_time()
    assert trio.current_time() == left + FLUSH_WAIT
    reading, writing = warnings(caplog)
    said("reading the store timed out", reading, store=tmp_path)
    said("writing to the store timed out", writing, store=tmp_path)


async def test_a_slow_file_of_one_server_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, stuck: threading.Event
) -> None:
    """A server can list what takes long to read. The next run judges the others by what was accepted all the same."""
    slow, other = Server(tmp_path / "slow", "slow"), Server(tmp_path / "other", "other")
    slow.behave("--tools", "50")
    configs = slow.config(on_tool_change="warn"), other.config(on_tool_change="block")
    async with open_servers(*configs, catalog_store=slow.store):
        pass
    other.behave("--tools", "1")
    load = _memory._load

    def reads(store: CatalogStore, naming: str, key: str, server: str) -> Any:
        if store.size(key) == max(path.stat().st_size for path in slow.store.iterdir()):
            stuck.wait()
        return load(store, naming, key, server)

    monkeypatch.setattr(_memory, "_load", reads)
    monkeypatch.setattr(_memory, "LOAD_WAIT", 0.6)
    async with open_servers(*configs, catalog_store=slow.store) as group:
        assert group["other"].tool_changes.added == ("tool_0",)
        stuck.set()
    assert "timed out after" in warnings(caplog)[0]


async def test_pins_are_kept_when_a_listing_is_too_large_for_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else a server that lists more than is kept would be trusted anew in each run."""
    a = Server(tmp_path)
    monkeypatch.setattr(_pins, "MAX_PIN_BYTES", 3000)
    async with open_servers(a.config(on_tool_change="block"), catalog_store=a.store):
        pass
    assert "bytes, and the limit is 3000" in warnings(caplog)[0]
    content = json.loads(a.file().read_text())
    assert content["tools"] is None
    assert {name.removeprefix("tools/") for name in content["pins"]} == {"identity", *TOOLS}
    a.behave("--tools", "1")
    async with open_servers(a.config(on_tool_change="block"), catalog_store=a.store, start_gate=0) as group:
        assert deferred(group) == {"a": False}
        assert shown(group) == list(TOOLS)
        assert group["a"].tool_changes.added == ("tool_0",)


async def test_a_blocking_server_shows_no_tools_if_its_accepted_ones_cannot_be_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    stuck: threading.Event,
    said: Said,
) -> None:
    """Otherwise delaying the read would be a way to have any tool accepted. The file is kept for the next run."""
    a = Server(tmp_path)
    async with open_servers(a.config(on_tool_change="block"), catalog_store=a.store):
        pass
    before = a.file().read_bytes()
    a.behave("--tools", "1")
    with monkeypatch.context() as patched:
        patched.setattr(_memory, "_load", lambda *_: stuck.wait())
        patched.setattr(_memory, "PINS_WAIT", 0.2)
        async with open_servers(a.config(on_tool_change="block"), catalog_store=a.store) as group:
            assert [tool.name for tool in group.tools] == []
            assert group["a"].tool_changes.added == (*TOOLS, "tool_0")
            with pytest.raises(ToolNotFound, match="was added or changed since its tools were accepted"):
                await group["a"].call_tool("add", {"a": 1, "b": 2})
            stuck.set()
    assert a.file().read_bytes() == before
    assert "timed out after" in warnings(caplog)[0]
    said("accepted tools could not be read", warnings(caplog)[1])
    async with open_servers(a.config(on_tool_change="block"), catalog_store=a.store) as group:
        assert group["a"].tool_changes.added == ("tool_0",)


async def test_a_shortage_while_the_accepted_tools_are_read_accepts_no_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Files that cannot be opened for want of descriptors are there; the next run judges by them."""
    a = Server(tmp_path)
    config = a.config(on_tool_change="block")
    async with open_servers(config, catalog_store=a.store):
        pass
    before = a.file().read_bytes()
    a.behave("--tools", "1")
    with ExitStack() as shortage:
        shortage.enter_context(no_descriptors())
        async with open_servers(attrs.evolve(config, connect="lazy"), catalog_store=a.store) as group:
            shortage.close()
            await group["a"].start()
            assert names(group) == set()
            assert group["a"].tool_changes.added == (*TOOLS, "tool_0")
    assert a.file().read_bytes() == before
    assert "failed: Too many open files after" in warnings(caplog)[0]
    async with open_servers(config, catalog_store=a.store) as group:
        assert names(group) == set(TOOLS)
        assert group["a"].tool_changes.added == ("tool_0",)


async def test_a_file_system_that_hangs_delays_the_end_by_its_bound_only(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    stuck: threading.Event,
) -> None:
    monkeypatch.setattr(_memory, "_save", lambda *_: stuck.wait())
    monkeypatch.setattr(_memory, "FLUSH_WAIT", 0.2)
    async with open_servers(server("a"), catalog_store=tmp_path) as group:
        await reach(group, "a", "ready")
        left = trio.current_time()
    assert 0.2 <= trio.current_time() - left < 0.2 + MARGIN
    [warning] = warnings(caplog)
    assert f"writing to {tmp_path} timed out" in warning
    assert warning.endswith(": a")


async def test_the_latest_listing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stuck: threading.Event
) -> None:
    """Also if it came while something older was being written; and writing does not wait for the end of the group."""
    a = Server(tmp_path)
    a.behave("--tools", "1")
    save, begun = _memory._save, trio.Event()

    def slow(*arguments: Any) -> None:
        trio.from_thread.run_sync(begun.set)
        stuck.wait()
        save(*arguments)

    monkeypatch.setattr(_memory, "_save", slow)
    async with open_servers(a.config(), catalog_store=a.store) as group:
        with trio.fail_after(BOUND):  # nothing is being written
            await begun.wait()
        a.behave("--tools", "2")
        await group["a"].restart()
        stuck.set()
    assert "tool_1" in remembered(a.file())
