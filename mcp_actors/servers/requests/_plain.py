"""Requests that are sent without a task, past the SDK's session."""

from __future__ import annotations

from abc import abstractmethod
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from attrs import define
from mcp.types import Result, methods
from mcp.types.version import KNOWN_PROTOCOL_VERSIONS
from opentelemetry import context, trace
from pydantic_core import PydanticSerializationError, to_json

from ..._plain_text import plain_text
from ..policy import bounded, is_modern, parse_result
from ._request import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mcp import Client, MCPError
    from mcp.types import InputRequiredResult, InputResponses
    from pydantic_core import ValidationError

    from ..record import ServerRecord

PROBLEM: Final = 400
"""Characters that are shown of a place in a result, and of what is wrong there."""

INPUT_REQUIRED: Final = "input_required"

_PROXY: Final = trace.ProxyTracerProvider()
"""Has tracers of its own until a provider is set. `trace.get_tracer_provider` would tell the same, but it looks for an
environment variable, and raises and catches an exception for that: a twentieth of a call. The SDK, which asks for a
tracer when it is imported, has made that variable count by then."""

ResultT = TypeVar("ResultT", bound=Result)


@define(eq=False, kw_only=True)
class PlainRequest(Request[ResultT]):
    """A request that may be sent without a task, if nothing in its configuration needs one.

    Attributes:
        method: the protocol's method.
        model: the class of its result.
    """

    method: ClassVar[str]
    model: ClassVar[type[Result]]

    @abstractmethod
    def plain(self, client: Client, record: ServerRecord) -> bytes | None:
        """Return the members of the request's params as JSON text, without braces and ``_meta``.

        None means that it needs a task; then `send` is called instead.

        Raises:
            Exception: the request must not be sent; its caller gets this error.
        """

    async def resume(
        self, client: Client, record: ServerRecord, answers: InputResponses | None, state: str | None
    ) -> ResultT | InputRequiredResult:
        """Send the request once more, with the input that its last result required, and return its result.

        Raises:
            Exception: as for `send`.
        """
        raise NotImplementedError  # the protocol has no input for this kind of request

    def explain(self, error: MCPError, record: ServerRecord) -> Exception:
        """Return the exception for an error of the server, as `send` raises it."""
        return error

    def read(self, version: str, result: dict[str, Any]) -> ResultT | InputRequiredResult:
        """Return a result as the SDK's session does.

        Args:
            version: the protocol version of the session.
            result: the parsed ``result`` of the answer. It is changed.

        Raises:
            pydantic_core.ValidationError: the result does not conform to the protocol.
        """
        without_later_fields(self.method, version, result)
        if result.get("resultType") != INPUT_REQUIRED:
            value: ResultT = bounded(self.model).validate_python(result, by_name=False)
            if self._is_plain(result):
                return value
        # What the session does with each answer. It costs as much as everything else together.
        return parse_result(self.method, version, result)  # type: ignore[no-any-return]  # one of the two

    def blocks(self, result: dict[str, Any]) -> Iterable[dict[str, Any]]:
        """Return the content blocks of a valid result."""
        return ()

    def _is_plain(self, result: dict[str, Any]) -> bool:
        """Return False if its class, which is the same for all versions, may have accepted what the session refuses."""
        for block in self.blocks(result):
            if "type" not in block:
                return False
        return (
            isinstance(result.get("structuredContent"), (dict, NoneType))
            and "inputRequests" not in result
            and "requestState" not in result
        )


def without_later_fields(method: str, version: str, result: dict[str, Any]) -> None:
    """Change a parsed result as the SDK does before it validates one.

    Args:
        method: the protocol's method.
        version: the protocol version of the session.
        result: the parsed ``result`` of the answer.
    """
    for key in _later_fields(method, version).intersection(result):
        del result[key]
    if is_modern(version):
        result.setdefault("resultType", "complete")  # as `with_result_type` does
    milliseconds = result.get("ttlMs")
    if type(milliseconds) in (int, float) and milliseconds < 0:  # type: ignore[operator]  # not None
        result["ttlMs"] = 0


def members_of(params: Mapping[str, Any]) -> bytes | None:
    """Return the members of a JSON object, without its braces; None if a value cannot be written as JSON."""
    try:
        return to_json(params, inf_nan_mode="null")[1:-1]  # what pydantic writes for these values in a model
    except (PydanticSerializationError, ValueError):
        return None


def first_problem(exc: ValidationError, mask: Callable[[str], str], *, skip: int = 0) -> str:
    """Return the first place at which a result violates the protocol, and how, without quoting its data.

    Args:
        exc: the error.
        mask: masks the credentials of the connection.
        skip: the number of steps of the place that are not shown.
    """
    first = exc.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(step) for step in first["loc"][skip:]) or "top level"
    more = f", and {exc.error_count() - 1} more" if exc.error_count() > 1 else ""
    return plain_text(mask(f"at {where}: {first['msg'].lower()}"), limit=PROBLEM) + more


@cache
def _later_fields(method: str, version: str) -> frozenset[str]:
    """Return the fields of a result that only later protocol versions define, which the SDK ignores."""
    own = methods.SERVER_RESULTS[method, version]
    versions = KNOWN_PROTOCOL_VERSIONS[KNOWN_PROTOCOL_VERSIONS.index(version) + 1 :]
    later = filter(None, (methods.SERVER_RESULTS.get((method, each)) for each in versions))
    return frozenset().union(*map(_fields, later)) - _fields(own)


def _fields(models: Any) -> frozenset[str]:
    """Return the names of the fields of a model, or of a union of models, as JSON has them."""
    members = getattr(models, "__args__", (models,))
    return frozenset(each.alias or name for model in members for name, each in model.model_fields.items())


def is_traced() -> bool:
    """Return True if the SDK's span for a request would be recorded, or the caller's be propagated to the server."""
    if type(_PROXY.get_tracer("mcp_actors")) is not trace.ProxyTracer:
        return True
    # Without a look at its context, which is nearly always empty, to ask for the span takes three times as long.
    return bool(context.get_current()) and trace.get_current_span().get_span_context().is_valid
