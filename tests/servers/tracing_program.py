"""Trace requests with OpenTelemetry: ``python -m tests.servers.tracing_program PATH``.

A provider of tracers can be set only once in a process, so this is a program of its own. It makes the same requests
with this library and with the SDK's client, in each era and over each kind of transport, and prints the spans of each
as JSON, with what the server has read.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count, product
from pathlib import Path
from typing import Any, Final

import trio
from attrs import frozen
from mcp import MCPError
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from mcp_actors.transports.http import _session

from .mirror import ERAS, KINDS, NO_GAPS, Json, Log, open_ours, open_theirs

REFUSED: Final = '{"jsonrpc":"2.0","id":$id,"error":{"code":7,"message":"no"}}'

FACTS: Final = ("replica", "incarnation", "attempt", "queue_seconds")

numbers: Final = count(1)


class RecordedSpan(NonRecordingSpan):
    """A span that keeps what is set on it."""

    def __init__(self, context: SpanContext, **told: Any) -> None:
        super().__init__(context)
        self.told: Json = {**told, "status": None, "exceptions": []}

    def is_recording(self) -> bool:
        """Return True, so that everything is set on it."""
        return True

    def set_attribute(self, key: str, value: Any) -> None:
        """Note an attribute."""
        self.told["attributes"][key] = value

    def set_attributes(self, attributes: Any) -> None:
        """Note attributes."""
        self.told["attributes"] |= attributes

    def set_status(self, status: Any, description: str | None = None) -> None:
        """Note how it went."""
        self.told["status"] = str(getattr(status, "status_code", status))

    def record_exception(self, exception: BaseException, *args: Any, **options: Any) -> None:
        """Note an exception."""
        self.told["exceptions"].append(type(exception).__name__)


@frozen
class Recorder(trace.Tracer):
    """A tracer that remembers its spans."""

    name: str

    def start_span(  # type: ignore[override]  # typed otherwise
        self, name: str, context: Any = None, kind: Any = None, attributes: Any = None, **options: Any
    ) -> Any:
        """Begin a span."""
        parent = trace.get_current_span(context)
        about = SpanContext(1, next(numbers), is_remote=False, trace_flags=TraceFlags(1))
        told = {"name": name, "kind": str(kind), "attributes": dict(attributes or {}), "tracer": self.name}
        span = RecordedSpan(about, **told, parent=getattr(parent, "told", {}).get("name"))
        SPANS.append(span)
        return span

    @contextmanager
    def start_as_current_span(  # type: ignore[override]  # typed otherwise
        self, name: str, *args: Any, **options: Any
    ) -> Iterator[Any]:
        """Begin a span, and end it."""
        flags = {each: options.pop(each, True) for each in ("record_exception", "set_status_on_exception")}
        options.pop("end_on_exit", None)
        with trace.use_span(self.start_span(name, *args, **options), **flags) as span:
            yield span


class Provider(trace.TracerProvider):
    """Provides such tracers."""

    def get_tracer(self, instrumenting_module_name: str, *args: Any, **options: Any) -> trace.Tracer:
        """Return one of this name."""
        return Recorder(instrumenting_module_name)


SPANS: Final[list[RecordedSpan]] = []
"""All that were begun."""


async def traced(client: Any, log: Log, *asks: Callable[[], Awaitable[object]]) -> list[Any]:
    """Ask all of this in a span, the last of which is refused; return the spans, and what the server has read."""
    SPANS.clear()
    before = len(log.posts)
    with trace.get_tracer("program").start_as_current_span("program"):
        for ask in asks:
            with suppress(MCPError):
                await ask()
    spans = {f"00-{1:032x}-{span.get_span_context().span_id:016x}-01": span.told for span in SPANS}
    found: list[Any] = [told for told in spans.values() if told["name"] == "program"]
    for entry in log.posts[before:]:
        message = entry["message"]
        told = spans.pop(message["params"]["_meta"]["traceparent"])
        assert told["attributes"].pop("jsonrpc.request.id") == str(message["id"])
        if told["attributes"].pop("mcp_actors.server", None) is not None:  # ours has more than that of the SDK
            facts = [told["attributes"].pop(f"mcp_actors.{each}") for each in FACTS]
            assert facts[1:3] == [1, 1], facts
        found.append([message["method"], told])
    assert all(told["name"] == "program" for told in spans.values()), spans
    return found


async def compare(era: Any, kind: Any, path: Path) -> dict[str, list[Any]]:
    """Trace the requests of both."""
    found = {}
    for name, open_client in (("ours", open_ours), ("theirs", open_theirs)):
        log = Log(path / name)
        (path / f"{name}.script").write_text(f"prompts/get\n{REFUSED}")
        async with open_client(era, kind, path / name) as client:
            await client.list_tools()  # after which nothing of the handshake is under way
            read, get, call = client.read_resource, client.get_prompt, client.call_tool
            found[name] = await traced(
                client,
                log,
                lambda call=call: call("say", {"a": 1}),  # type: ignore[misc]  # mypy cannot infer it
                lambda call=call: call("say", meta={"k": 1}),  # type: ignore[misc]  # as above
                lambda read=read: read("a:b"),  # type: ignore[misc]  # as above
                lambda get=get: get("greet"),  # type: ignore[misc]  # as above
            )
    return found


if __name__ == "__main__":
    _session.GAP_BACKOFF = NO_GAPS  # type: ignore[misc]  # a constant
    trace.set_tracer_provider(Provider())
    all_found: dict[str, dict[str, list[Any]]] = {}
    for era, kind in product(ERAS, KINDS):
        (path := Path(sys.argv[1], f"{era} {kind}")).mkdir()
        all_found[path.name] = trio.run(compare, era, kind, path)
    print(json.dumps(all_found))
