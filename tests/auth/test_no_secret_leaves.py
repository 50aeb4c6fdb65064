"""One group through all that can happen to it, and every secret searched for in all that it shows."""

from __future__ import annotations

import base64
import json
import logging
import pickle
import sqlite3
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, quote, urlsplit

import pytest
import trio
from attrs import define, field
from mcp.client.auth.oauth2 import PKCEParameters
from mcp.shared import _otel
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, NoOpTracerProvider, SpanContext, TraceFlags

from mcp_actors import open_servers
from mcp_actors.auth import FileTokenStore, SignInRequired
from mcp_actors.config import SqliteSource, dump_config, load_config
from mcp_actors.kernel import Event
from mcp_actors.servers import ServerGroup

from ..cli.terminal import accept_found
from .authority import SECRET, Authority, Browser

pytest.importorskip("cyclopts", reason="the extra 'cli' is not installed")

GOSSIP: Final = str(Path(__file__).parents[1] / "servers" / "gossip.py")
HERE: Final = Path(__file__).parent

VARIABLES: Final = {
    "CLIENT_SECRET": SECRET,
    "GOSSIP": "value-of-a-variable-4711",
    "API_KEY": "value-of-a-header-0815",
    "PERSON": "person-of-the-url",
    "PASSWORD": "p4ssw0rd-of-the-url",
}


def entries(url: str) -> dict[str, Any]:
    """Return two servers with one sign-in, a process that repeats its environment, and one that refuses a password."""
    legacy = {"protocol": "legacy"}
    client = {"clientId": "confidential", "clientSecret": "${CLIENT_SECRET}"}
    process = {"command": sys.executable, "args": ["-S", "-E", "-X", "utf8", GOSSIP]}
    at = urlsplit(url)
    return {
        "guarded": {"url": f"{url}/mcp", "oauth": client, "mcp_actors": legacy | {"restarts": {"max_restarts": 1}}},
        "hasty": {"url": f"{url}/mcp", "oauth": client, "mcp_actors": legacy | {"request_timeout": 0.05}},
        "gossip": {**process, "env": {"GOSSIP": "${GOSSIP}"}, "mcp_actors": legacy},
        "web": {
            "url": f"http://${{PERSON}}:${{PASSWORD}}@{at.netloc}/mcp",
            "headers": {"X-Api-Key": "${API_KEY}"},
            "mcp_actors": legacy | {"restarts": {"max_restarts": 0}},
        },
    }


@define
class Shown:
    """All that was shown, and the secrets that must not be in it.

    Attributes:
        texts: what was shown, by where.
        secrets: the secrets, by what they are.
    """

    texts: list[tuple[str, str]] = field(factory=list)
    secrets: dict[str, str] = field(factory=dict)

    def show(self, where: str, *values: object) -> None:
        """Keep all texts that anybody can make of some values."""
        self.texts += [(where, f"{value}\n{value!r}") for value in values]

    def error(self, where: str, error: BaseException | None) -> None:
        """Keep all that an error shows, with what is behind it and the variables of our frames."""
        while error is not None:
            captured = traceback.TracebackException(type(error), error, error.__traceback__, capture_locals=True)
            captured.stack[:] = [frame for frame in captured.stack if not Path(frame.filename).is_relative_to(HERE)]
            self.show(where, error, vars(error), *captured.format(chain=False), pickle.dumps(error))
            for each in getattr(error, "exceptions", ()):
                self.error(where, each)
            error = error.__cause__ or error.__context__

    def group(self, where: str, servers: ServerGroup) -> None:
        """Keep all that a group shows."""
        self.show(where, servers, servers.errors, servers.status(), servers.tree(), [*servers.tools])
        for name, ref in servers.items():
            self.show(f"{where} {name}", ref, ref.config, ref.statistics())
            self.error(f"{where} {name}", servers.errors.get(name))
            self.error(f"{where} {name}", servers.status()[name].last_error)

    def leaks(self) -> list[tuple[str, str]]:
        """Return which secret is shown where."""
        assert all(len(secret) >= 8 for secret in self.secrets.values())
        found = set()
        whole = "\n".join(text for _, text in self.texts)
        for what, secret in self.secrets.items():
            pairs = f"{VARIABLES['PERSON']}:{secret}", f"confidential:{quote(secret, safe='')}"
            encoded = {base64.b64encode(pair.encode()).decode().rstrip("=") for pair in pairs}
            forms = {secret, quote(secret, safe=""), json.dumps(secret)[1:-1], *encoded}
            leaked = [form for form in forms if form in whole]
            found |= {(what, where) for where, text in self.texts if any(form in text for form in leaked)}
        return sorted(found)


@define
class Spans(NoOpTracerProvider):
    """Keeps all that OpenTelemetry is given."""

    kept: list[object] = field(factory=list)

    def get_tracer(self, *args: Any, **options: Any) -> trace.Tracer:
        kept = self.kept

        class Span(NonRecordingSpan):
            def is_recording(self) -> bool:
                return True

            def set_attribute(self, *args: Any) -> None:
                kept.append(args)

            def record_exception(self, *args: Any, **options: Any) -> None:
                kept.append((args, options))

            def set_status(self, status: Any, description: str | None = None) -> None:
                kept.append((getattr(status, "description", status), description))

        class Tracer(trace.NoOpTracer):
            def start_span(self, *args: Any, **options: Any) -> trace.Span:
                kept.append((args, options))
                return Span(SpanContext(trace_id=1, span_id=2, is_remote=False, trace_flags=TraceFlags(1)))

        return Tracer()


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    """OpenTelemetry, which keeps all."""
    provider = Spans()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    # The SDK's tracer keeps the one that the provider gives it, also when the provider is gone.
    monkeypatch.setattr(_otel, "_tracer", provider.get_tracer())
    return provider


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shown]:
    """Collect all that is shown, with the variables and each verifier of the SDK as secrets."""
    shown = Shown(secrets=dict(VARIABLES))
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    generate = PKCEParameters.generate

    def noted() -> PKCEParameters:
        parameters = generate()
        shown.secrets[f"verifier {len(shown.secrets)}"] = parameters.code_verifier
        return parameters

    monkeypatch.setattr(PKCEParameters, "generate", noted)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        yield shown
    assert warned == []


@define
class Life:
    """The life of the group."""

    authority: Authority
    shown: Shown
    folder: Path

    def tokens(self) -> dict[str, str]:
        """Return the stored tokens, and note them as secrets."""
        (path,) = (self.folder / "data").glob("mcp-actors/tokens/*.json")
        found: dict[str, Any] = json.loads(path.read_text())["tokens"]
        tokens = {name: value for name, value in found.items() if name in ("access_token", "refresh_token")}
        self.shown.secrets |= {f"{name} {value[:3]}": value for name, value in tokens.items()}
        return tokens

    def note(self, browser: Browser) -> None:
        """Note the code and the state of the last redirect as secrets."""
        redirected = parse_qs(urlsplit(browser.ended_at).query)
        self.shown.secrets |= {f"{name} {len(browser.pages)}": redirected[name][0] for name in ("state", "code")}

    async def fails(self, what: str, fn: Callable[..., Any], *args: Any, **options: Any) -> None:
        """Call a function that fails, and keep all that its error shows."""
        with pytest.raises(Exception) as caught:  # noqa: PT011  # each step fails in its own way
            await fn(*args, **options)
        self.shown.error(what, caught.value)

    async def signs_in(self, servers: ServerGroup) -> None:
        """Let the person refuse, let a callback and the exchange of a code fail, and let the person agree."""
        guarded, browser = servers["guarded"], Browser()
        self.authority.set(refuse=True)
        await self.fails("a refused consent", guarded.sign_in, show=browser.show)
        self.authority.set(refuse=False)

        async def fail(url: str) -> None:
            self.shown.secrets["state 0"] = parse_qs(urlsplit(url).query)["state"][0]
            del url
            raise ValueError("a defect")

        await self.fails("a callback that raises", guarded.sign_in, show=fail)
        self.authority.set(quote=True)
        await self.fails("a quoted code", guarded.sign_in, show=browser.show)
        self.note(browser)
        self.authority.set(quote=False)
        self.shown.group("before the sign-in", servers)
        await guarded.sign_in(show=browser.show)
        self.note(browser)

    async def works(self, servers: ServerGroup) -> None:
        """Call what repeats a token, what never answers and what crashes; refresh a token, and reload."""
        guarded, gossip = servers["guarded"], servers["gossip"]
        self.tokens()
        await self.fails("a quoted token", guarded.call_tool, "leak")
        await servers.reconnect("hasty")
        await servers["hasty"].wait_ready()
        await self.fails("a timeout", servers["hasty"].call_tool, "hang")
        self.authority.set(revoke=self.tokens()["access_token"])
        await guarded.call_tool("whoami")
        self.tokens()
        for tool in ("error", "misfit"):
            await self.fails(tool, gossip.call_tool, tool)
        await gossip.wait_ready()
        await self.fails("a crash", gossip.call_tool, "end")
        self.shown.group("after a crash", servers)
        await gossip.wait_ready()
        self.shown.show("reload", await servers.reload())

    async def loses_the_sign_in(self, servers: ServerGroup) -> None:
        """Revoke all tokens."""
        tokens = self.tokens()
        for kind in ("refresh_token", "access_token"):
            self.authority.set(revoke=tokens[kind])
        await self.fails("a revoked sign-in", servers["guarded"].call_tool, "whoami")
        await servers["guarded"].wait_state("needs_auth")
        assert isinstance(servers.errors["guarded"], SignInRequired)

    async def run(self, table: SqliteSource) -> None:
        """Lead the group through all of it."""
        store = self.folder / "catalog"
        observers = [lambda event: self.observe(event)]
        async with open_servers(table, catalog_store=store, observers=observers) as servers:
            await self.signs_in(servers)
            await self.works(servers)
            self.shown.group("while it serves", servers)
            await self.loses_the_sign_in(servers)
            self.shown.group("afterwards", servers)
            await servers["guarded"].sign_in(show=Browser().show)
            self.tokens()

    def observe(self, event: Event) -> None:
        """Keep an event."""
        self.shown.show(type(event).__name__, event)
        self.shown.error(type(event).__name__, getattr(event, "error", None))


def fill(table: Path, servers: dict[str, Any]) -> SqliteSource:
    """Write servers into a table."""
    source = SqliteSource(table, instance="here")
    source.create_tables()
    with closing(sqlite3.connect(table)) as connection, connection:
        rows = [(name, json.dumps(entry)) for name, entry in servers.items()]
        connection.executemany("INSERT INTO mcp_servers (name, spec) VALUES (?, ?)", rows)
    return source


def test_no_secret_leaves_whatever_happens(
    authority: Authority,
    shown: Shown,
    spans: Spans,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A-24, B-09, C-17: errors, logs, events, views, tables, files, spans, warnings and commands show no credential."""
    from mcp_actors.cli import _run

    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    servers = entries(authority.url)
    document = {"mcpServers": servers}
    table = fill(tmp_path / "servers.db", servers)
    trio.run(Life(authority, shown, tmp_path).run, table)

    (tmp_path / ".mcp.json").write_text(json.dumps(document))
    monkeypatch.chdir(tmp_path)
    accept_found(tmp_path)
    for command in ("check", "whoami", "tools", "graph"):
        for words in ([command], [command, "--json"]):
            _run.run(words)
            shown.show(f"mcp-actors {' '.join(words)}", *capsys.readouterr())
    for record in caplog.records:
        shown.show(f"log {record.name}", record.getMessage(), record.exc_text, vars(record))
    with closing(sqlite3.connect(tmp_path / "servers.db")) as connection:
        shown.show("table", *connection.execute("SELECT * FROM mcp_server_status"))
    for folder in ("catalog", "state"):
        shown.show(folder, *(path.read_bytes() for path in (tmp_path / folder).rglob("*") if path.is_file()))
    loaded = load_config(document)
    shown.show("dump_config", dump_config(loaded.servers), loaded, FileTokenStore())
    shown.show("span", *spans.kept)

    assert {"verifier", "access_token", "refresh_token", "code", "state"} <= {what.split()[0] for what in shown.secrets}
    assert {"a crash", "a timeout", "StateChanged", "table", "catalog", "span", "mcp-actors graph --json"} <= {
        where for where, _ in shown.texts
    }
    assert shown.leaks() == []
