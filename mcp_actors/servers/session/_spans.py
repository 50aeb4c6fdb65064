"""OpenTelemetry spans of requests, as the SDK writes them.

A span is a child of the caller's span, and is named like ``MCP send tools/call search``. The server learns the trace
from ``_meta`` (SEP-414). All of this is skipped if there is neither a tracer provider nor a span of the caller: it
would cost a third of a small call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mcp import MCPError
from mcp.types import RequestId
from opentelemetry import context, propagate, trace

from ...transports import CLOSED

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from ...transports import Json

_TRACER: Final = trace.get_tracer("mcp-python-sdk")
"""The tracer, under the SDK's name for its own: a search for the spans of MCP clients finds these too."""


def is_traced() -> bool:
    """Return True if a span of a request would be recorded, or that of the caller passed on to the server."""
    if _is_recorded():
        return True
    # The context is nearly always empty. To look at it first takes a third of the time of asking for the span.
    return bool(context.get_current()) and trace.get_current_span().get_span_context().is_valid


def _is_recorded() -> bool:
    """Return True once a provider was set."""
    # A new tracer would tell the same, but takes a fiftieth of a call. The name is private: if it is renamed, each
    # request has a span that nothing records, and all else works.
    return getattr(trace, "_TRACER_PROVIDER", trace) is not None


class RequestSpan:
    """The span of one request, from before it is sent to its answer. Without a provider it is that of its caller.

    Args:
        method: the protocol's method.
        name: the tool or prompt that the request names; anything else for no name.
        request_id: the id of the request.
    """

    __slots__ = ("_span",)

    def __init__(self, method: str, name: object, request_id: RequestId) -> None:
        self._span: trace.Span = trace.INVALID_SPAN
        if _is_recorded():
            self._span = _TRACER.start_span(
                f"MCP send {method} {name}" if isinstance(name, str) else f"MCP send {method}",
                kind=trace.SpanKind.CLIENT,
                attributes={"mcp.method.name": method, "jsonrpc.request.id": str(request_id)},
            )

    def inject(self, meta: Json) -> None:
        """Write the trace into the ``_meta`` of the request."""
        propagate.inject(meta, self.context)

    @property
    def context(self) -> Context:
        """The context in which this is the current span."""
        return context.get_current() if self._span is trace.INVALID_SPAN else trace.set_span_in_context(self._span)

    def end(self, failure: BaseException | None = None) -> None:
        """End the span, with the failure of the request if there is one."""
        if isinstance(failure, MCPError) and failure.error is not CLOSED:
            code = str(failure.code)
            self._span.set_attributes({"error.type": code, "rpc.response.status_code": code})
            self._span.set_status(trace.StatusCode.ERROR, failure.message)
        elif isinstance(failure, Exception):
            self._span.record_exception(failure)
            self._span.set_status(trace.StatusCode.ERROR, f"{type(failure).__name__}: {failure}")
        self._span.end()
