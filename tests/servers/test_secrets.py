"""Resolved credentials appear in no message about a server, however the server repeats them."""

from __future__ import annotations

import base64
import gc
import logging
import pickle
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx2
import pytest
from mcp import MCPError

from mcp_actors import (
    ConnectFailed,
    ConnectionLost,
    Http,
    HttpStatusError,
    McpActorsError,
    Secret,
    ServerConfig,
    ServerError,
    Sse,
    Stdio,
    open_servers,
)
from mcp_actors._text import one_line
from mcp_actors.config import ConfigValue, Transport, load_config
from mcp_actors.servers import ServerGroup
from mcp_actors.transports import Masker

from .faults.http_faults import Raw, faulty_server, response
from .groups import NEVER, Events, existing, reach
from .links import text_of

SERVER: Final = str(Path(__file__).with_name("gossip.py"))
TOKEN: Final = 'sk-Live/4711"0815 ü'
BEARER: Final = "sk-Live-47110815"


def gossip(*flags: str, **options: Any) -> ServerConfig:
    """Configure a server that repeats what it was given; `options` are those of `Stdio`."""
    transport = Stdio(sys.executable, ("-S", "-E", "-X", "utf8", SERVER, *flags), **options)
    return ServerConfig("gossip", transport, protocol="legacy", restarts=NEVER)


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what is behind it."""
    while error is not None:
        yield error
        yield from getattr(error, "exceptions", ())
        error = error.__cause__ or error.__context__


def told(error: BaseException) -> str:
    """Return all that anybody can see of an error, also with a tool that shows the variables of each frame."""
    frames = traceback.TracebackException.from_exception(error, capture_locals=True)
    stack: traceback.TracebackException | None = frames
    while stack is not None:  # without the frames of the test, which knows the secret
        stack.stack[:] = [each for each in stack.stack if each.filename != __file__]
        stack = stack.__cause__ or stack.__context__
    parts = [*frames.format(), *(f"{each!r} {each} {vars(each)}" for each in chain(error))]
    if isinstance(error, McpActorsError):
        parts.append(repr(pickle.dumps(error)))
    return "\n".join(parts)


def told_by(group: ServerGroup, events: Events) -> str:
    """Return all that a group and its events tell."""
    errors = [*group.errors.values(), *(status.last_error for status in group.status().values())]
    errors += [getattr(event, "error", None) for event in events]
    parts = [told(error) for error in errors if error is not None]
    return "\n".join([*parts, repr(group.status()), *map(repr, events)])


def forms(secret: str) -> list[str]:
    """Return how a secret may be written, and pieces of it that are long enough to be of use."""
    return [secret, secret.upper(), quote(secret, safe=""), secret[: len(secret) // 2 + 2], secret[len(secret) // 2 :]]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Keep all that is logged, by whomever."""
    caplog.set_level(logging.DEBUG)
    return caplog


@pytest.mark.parametrize("form", ["plain", "upper", "json", "url", "hidden", "escape"])
async def test_last_words_that_repeat_a_token_name_it_instead(form: str, log: pytest.LogCaptureFixture) -> None:
    """B-18."""
    events = Events()
    config = gossip("--exit", env={"GOSSIP": Secret(TOKEN), "FORM": form})
    async with open_servers(config, observers=[events]) as group:
        await reach(group, "gossip", "failed")
        shown = told_by(group, events) + log.text
        error = group.errors["gossip"]
        assert isinstance(error, ConnectFailed)
        assert error.stderr_tail == "token=<env.GOSSIP> is invalid"
        assert "token=<env.GOSSIP> is invalid" in str(error)
    assert [each for each in forms(TOKEN) if each in shown or each in one_line(shown)] == []


async def test_a_tail_that_begins_in_the_middle_of_a_token_begins_with_its_name() -> None:
    """B-18."""
    async with open_servers(gossip("--long", env={"GOSSIP": Secret(TOKEN)})) as group:
        await reach(group, "gossip", "failed")
        error = group.errors["gossip"]
        assert isinstance(error, ConnectFailed)
        assert error.stderr_tail.startswith("<env.GOSSIP>yyy")
        assert len(error.stderr_tail) <= 64 * 1024 + len("<env.GOSSIP>")


@pytest.mark.parametrize("form", ["plain", "upper", "json", "url", "hidden", "escape"])
async def test_credentials_that_a_serving_process_repeats_are_masked(form: str, log: pytest.LogCaptureFixture) -> None:
    """B-18: in errors, in events and in logs. The result of a tool is data, and stays."""
    events = Events()
    config = gossip("--schemas", env={"GOSSIP": lambda: TOKEN, "FORM": form})
    async with open_servers(config, observers=[events]) as group:
        ref = group["gossip"]
        with pytest.raises(MCPError) as answered:
            await ref.call_tool("error")
        assert answered.value.code == -32001
        assert answered.value.message == "token=<env.GOSSIP> is invalid"
        assert answered.value.data == {"given": ["<env.GOSSIP>"]}
        with pytest.raises(ConnectionLost) as misfit:
            await ref.call_tool("misfit")
        data = text_of(await ref.call_tool("data"))
        await ref.call_tool("shape")
        await ref.call_tool("other")
        await ref.call_tool("noise")
        with pytest.raises(ConnectionLost) as ended:
            await ref.call_tool("end")
        await reach(group, "gossip", "failed")
        shown = told_by(group, events) + "".join(told(each.value) for each in (answered, misfit, ended)) + log.text
    assert "token=<env.GOSSIP> is invalid" in log.text
    assert "token=<env.GOSSIP>" in group.status()["gossip"].last_error.__class__.__name__ + log.text
    assert "tool 'shape': its result does not match its output schema: structured_content.as" in log.text
    assert "tool 'other': its result does not match its output schema: structured_content.of" in log.text
    assert one_line(data).lower() in [
        each.lower() for each in (TOKEN, quote(TOKEN, safe=""), r"sk-Live/4711\"0815 \u00fc")
    ]
    assert [each for each in forms(TOKEN) if each in shown or each in one_line(shown)] == []


@pytest.mark.parametrize(
    "options",
    [
        {"env": {"GOSSIP": TOKEN}},
        {"env": {"GOSSIP": "${UNNAMED}"}},
        {"env": {"GOSSIP": "${UNNAMED} and more"}},
        {"env_from": ("GOSSIP",)},
    ],
    ids=["plain", "variable", "part", "passed on"],
)
async def test_every_value_of_the_environment_counts(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    """B-18."""
    monkeypatch.setenv("UNNAMED", TOKEN)
    monkeypatch.setenv("GOSSIP", TOKEN)
    events = Events()
    async with open_servers(gossip("--exit", **options), observers=[events]) as group:
        await reach(group, "gossip", "failed")
        assert TOKEN not in told_by(group, events) + log.text


async def test_common_values_are_not_masked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """B-18: nor is what is too short to be a secret."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in (str(tmp_path), "8080"):
        async with open_servers(gossip("--exit", env={"GOSSIP": value})) as group:
            assert value in str(group.errors["gossip"])


async def test_a_variable_in_an_argument_of_a_file_is_masked_by_its_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """B-18."""
    monkeypatch.setenv("UNNAMED", TOKEN)
    script = "echo bad header $0 >&2; exit 3"
    file = {"mcpServers": {"relay": {"command": "/bin/sh", "args": ["-c", script, "X-Key: ${UNNAMED}"]}}}
    async with open_servers(*load_config(file).servers) as group:
        await reach(group, "relay", "backoff", "failed")
        assert "bad header X-Key: ${UNNAMED}" in str(group.errors["relay"])


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (["--token=sk-live-4711"], "--token=<args[2]>"),
        (["--token", "sk-live-4711"], "--token <args[3]>"),
        (["--env=API_KEY=sk-live-4711"], "--env=API_KEY=<args[2]>"),
        (["--header", "Authorization: Bearer sk-live-4711"], "--header <args[3]>"),
        (["--db=postgres://ada:sk-live-4711@db/x"], "--db=postgres://<args[2]>@db/x"),
        (["https://x.example/?sk-live-4711#sk-live-4712"], "https://x.example/?<args[2]>#<args[2]>"),
        (["${UNSET:-sk-live-4711}"], "${UNSET}"),
        (["${UNSET:-${UNSET2:-sk-live-4711}}"], "${UNSET2}"),
        (["postgres://ada:sk-live/4711@db/x"], "postgres://<args[2]>@db/x"),
    ],
)
async def test_a_credential_in_an_argument_is_masked_where_the_process_repeats_it(
    args: list[str], shown: str, log: pytest.LogCaptureFixture
) -> None:
    """B-18: many programs show how they were started when they refuse an argument."""
    events, script = Events(), 'echo "usage: $0 $*" >&2; exit 3'
    file = {"mcpServers": {"relay": {"command": "/bin/sh", "args": ["-c", script, *args]}}}
    async with open_servers(*load_config(file).servers, observers=[events]) as group:
        await reach(group, "relay", "backoff", "failed")
        assert f"usage: {shown}" in str(group.errors["relay"])
        assert "sk-live" not in told_by(group, events) + log.text


def refusal(words: str, status: int = 401) -> str:
    """Write an answer that repeats something, wherever it can."""
    body = f'{{"jsonrpc": "2.0", "id": null, "error": {{"code": -32001, "message": "{words} is invalid"}}}}'
    return response(status, body, f"X-Reason: {words}").replace("Status\r", f"{words}\r", 1)


LONG: Final = f"{BEARER}{'-0123456789' * 20}"
CUTS: Final = {
    "kind": response(200, "{}", kind=f"text/{LONG}"),
    "id": response(200, f'{{"jsonrpc": "2.0", "id": "{LONG}", "result": {{}}}}'),
    "encodings": response(200, "{}", f"Content-Encoding: gzip, {LONG}"),
    "version": response(
        200,
        f'{{"jsonrpc": "2.0", "id": {{id______}}, "result": {{"protocolVersion": "{LONG}", "capabilities": {{}}, '
        '"serverInfo": {"name": "a", "version": "1"}}}',
        "Connection: close",
    ),
}


@pytest.mark.parametrize("raw", CUTS.values(), ids=CUTS)
async def test_a_long_token_is_masked_where_an_error_shortens_it(raw: str, log: pytest.LogCaptureFixture) -> None:
    """B-18: the beginning of a value is a credential too."""
    events = Events()
    with faulty_server() as running:
        running.scripts["server/discover"] = running.scripts["initialize"] = Raw(raw)
        config = ServerConfig("web", Http(running.url(), auth=LONG), restarts=NEVER)
        async with open_servers(config, observers=[events]) as group:
            shown = told_by(group, events)
            assert "<auth>" in str(group.errors["web"])
    assert BEARER not in shown + log.text


BASIC: Final = base64.b64encode(b"someone:p4ssw0rd").decode()
REFUSALS: Final = {
    "401": refusal(f"Bearer {BEARER}"),
    "400": refusal(BEARER, 400),
    "no MCP": response(200, BEARER, kind=f"text/{BEARER}"),
    "elsewhere": response(307, "", f"Location: https://elsewhere.example/{BEARER}"),
    "no HTTP": f"HTTP/9.9 {BEARER}\r\n\r\n",
    "misfit": response(200, f'{{"jsonrpc": "2.0", "id": {{id______}}, "result": {{"content": 5, "{BEARER}": 1}}}}'),
    "another": response(200, f'{{"jsonrpc": "2.0", "id": "{BEARER}", "result": {{}}}}'),
}


AUTHS: Final[tuple[Any, ...]] = (BEARER, Secret(BEARER), lambda: BEARER)


@pytest.mark.parametrize(
    ("raw", "auth"), [(raw, AUTHS[number % 3]) for number, raw in enumerate(REFUSALS.values())], ids=REFUSALS
)
async def test_a_refusal_that_repeats_a_token_names_it_instead(
    raw: str, auth: Any, log: pytest.LogCaptureFixture
) -> None:
    """B-18: at the connect, and for a call; whether it is a text, a `Secret` or comes out of a function."""
    events = Events()
    with faulty_server() as running:
        config = ServerConfig("web", Http(running.url(), auth=auth), restarts=NEVER)
        running.scripts["sleep"] = Raw(raw)
        async with open_servers(config, observers=[events]) as group:
            with pytest.raises((ServerError, MCPError)) as failed:
                await group["web"].call_tool("sleep")
            shown = told_by(group, events) + told(failed.value)
        running.scripts["server/discover"] = running.scripts["initialize"] = Raw(raw)
        async with open_servers(config, observers=[events]) as group:
            shown += told_by(group, events)
            assert "web" in group.errors
    assert BEARER not in shown
    assert BEARER not in log.text


async def test_a_credential_of_any_part_of_a_connect_is_masked(log: pytest.LogCaptureFixture) -> None:
    """B-18: a header, a part of a header, a user and a password, the value of a query; and each as it is sent."""
    with faulty_server() as running:

        async def words_of(transport: Http | Sse, words: str) -> str:
            running.scripts["server/discover"] = running.scripts["GET"] = Raw(refusal(words))
            async with open_servers(ServerConfig("web", transport, restarts=NEVER)) as group:
                error = group.errors["web"]
                assert isinstance(error.__cause__, HttpStatusError)
                return told(error)

        url = running.url().replace("//", "//someone:p4ssw0rd@") + "?key=a%20secret%2Fkey"
        for transport in (
            Http(url, headers={"X-Key": "abcdefgh12345678"}),
            Sse(url, headers={"X-Key": "abcdefgh12345678"}),
        ):
            for words in ("p4ssw0rd", BASIC, "a secret/key", "a%20secret%2Fkey", "a+secret%2Fkey", "abcdefgh12345678"):
                assert words not in await words_of(transport, words)
        scheme = Http(running.url(), headers={"Authorization": f"Token {BEARER}"})
        assert BEARER not in await words_of(scheme, BEARER)
    assert "p4ssw0rd" not in log.text


async def test_the_token_of_an_auth_flow_is_masked() -> None:
    """B-18: it is known only when it is sent."""

    class Flow(httpx2.Auth):
        def auth_flow(self, request: httpx2.Request) -> Any:
            request.headers["Authorization"] = f"Bearer {BEARER}"
            yield request

    with faulty_server() as running:
        running.scripts["server/discover"] = Raw(refusal(BEARER))
        async with open_servers(ServerConfig("web", Http(running.url(), auth=Flow()), restarts=NEVER)) as group:
            assert BEARER not in told(group.errors["web"])
            assert "<auth>" in str(group.errors["web"])


async def test_no_frame_of_a_kept_error_has_a_resolved_value(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """B-19: whatever goes wrong after it was resolved."""
    monkeypatch.setenv("UNNAMED", TOKEN)

    def refuse() -> str:
        token = TOKEN
        raise LookupError(len(token))

    no_program = tmp_path / "no-program"
    no_program.write_text("#!/does/not/exist\n")
    no_program.chmod(0o755)
    env: dict[str, ConfigValue] = {"TOKEN": Secret(TOKEN), "OTHER": "${UNNAMED}"}
    transports: list[Transport] = [
        Stdio("/does/not/exist", env=env),
        Stdio(str(no_program), env=env),
        Stdio(sys.executable, env={**env, "LAST": refuse}),
        Stdio(sys.executable, ("-c", "raise SystemExit(3)"), env=env),
        Http("http://127.0.0.1:1/mcp?key=a-secret-key", headers={"X-Key": BEARER}, auth=refuse),
        Http("http://127.0.0.1:1/mcp?key=a-secret-key", headers={"X-Key": BEARER}),
        Sse("http://127.0.0.1:1/sse?key=a-secret-key", headers={"X-Key": BEARER}),
        Http("http://127.0.0.1:1/mcp", headers={"X-Key": BEARER}, http_client=refuse),  # type: ignore[arg-type]  # it raises
    ]
    events = Events()
    configs = [ServerConfig(f"s{number}", each, restarts=NEVER) for number, each in enumerate(transports)]
    async with open_servers(*configs, observers=[events]) as group:
        for config in configs:
            await reach(group, config.name, "failed")
        shown = told_by(group, events)
        cause = [each for each in chain(group.errors["s2"]) if isinstance(each, LookupError)]
    assert [each for each in (*forms(TOKEN), BEARER, "a-secret-key") if each in shown] == []
    assert "refuse" in cause[0].__notes__[0]
    assert __file__ in cause[0].__notes__[0]


async def test_a_call_that_fails_on_its_way_keeps_no_request(log: pytest.LogCaptureFixture) -> None:
    """B-19."""
    events = Events()
    with faulty_server() as running:
        transport = Http(running.url() + "?key=a-secret-key", auth=BEARER)
        async with open_servers(ServerConfig("web", transport, restarts=NEVER), observers=[events]) as group:
            with pytest.raises(ServerError) as failed:
                await group["web"].call_tool("raw", Raw("", "reset")._asdict())
            running.die()
            with pytest.raises(ServerError) as gone:
                await group["web"].call_tool("raw", Raw("", "reset")._asdict())
            shown = told_by(group, events) + told(failed.value) + told(gone.value)
    assert [each for each in (BEARER, "a-secret-key") if each in shown] == []


async def test_resolved_values_are_not_kept_beyond_the_connection() -> None:
    """B-18, B-19: nothing refers to it any more, although the error is kept."""

    def maskers() -> int:
        gc.collect()
        return sum(bool(each.longest) for each in existing(Masker))

    config = gossip(env={"GOSSIP": Secret(TOKEN)})
    async with open_servers(config) as group:
        assert maskers() == 1
        with pytest.raises(ConnectionLost):
            await group["gossip"].call_tool("end")
        await reach(group, "gossip", "failed")
        assert group.errors["gossip"].__traceback__ is None
        assert maskers() == 0
