"""Choose a protocol era, compare versions, and validate messages of servers.

In the *legacy* era a session begins with ``initialize``. In the *modern* era, since 2026-07-28, there are no sessions,
and ``server/discover`` returns a server's capabilities. With ``protocol="auto"`` a connect negotiates the era
(`Negotiation`), unless the era is remembered.

Owns: cached validators; cached field names.
Writes: corrected fields of servers' results.
Calls: config.
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen
from mcp import MCPError, types
from mcp.types import INVALID_PARAMS, METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION, DiscoverResult, methods
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS, KNOWN_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter
from pydantic_core import SchemaValidator, ValidationError

from .._text import plain_text
from ..config import speaks_sse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mcp.types import Implementation

    from ..config import ServerConfig


@frozen
class Era:
    """The era that a connect begins with.

    Attributes:
        mode: how to negotiate: ``"auto"``, ``"legacy"``, or a version since 2026-07-28.
        discovered: the server's last answer to ``server/discover``, used instead of a new request.
        quirk: the name and version of a server whose process did not survive ``server/discover``; empty if the server
            has not given them; None for other servers.
    """

    mode: str
    discovered: DiscoverResult | None = None
    quirk: str | None = None


ASK: Final = Era("auto")
LEGACY: Final = Era("legacy")
QUIRK: Final = Era("legacy", quirk="")


def first_era(config: ServerConfig) -> Era:
    """Return the era that the first connect begins with. HTTP with SSE is older than ``server/discover``."""
    return LEGACY if speaks_sse(config.transport, os.environ) else Era(config.protocol)


def era_of(discovered: DiscoverResult | None, version: str, identity: Implementation | None, begun: Era) -> Era | None:
    """Return the era to remember after a successful connect; None to negotiate again.

    Args:
        discovered: the answer to ``server/discover``; None in the legacy era.
        version: the agreed protocol version.
        identity: the server's name and version, if given.
        begun: the era that the connect began with.
    """
    if discovered is None:
        return LEGACY if begun.quirk is None else _era_of_quirk(identity, begun.quirk)
    if discovered.capabilities.tools is None:
        # A connect would send neither server/discover nor tools/list, and so prove nothing about the server.
        return None
    return Era(version, discovered)


def _era_of_quirk(identity: Implementation | None, known: str) -> Era | None:
    """Return the era of a server that did not survive ``server/discover``; None for a changed version."""
    version = f"{identity.name} {identity.version}" if identity is not None else ""
    return Era("legacy", quirk=version) if known in ("", version) else None


def era_after_failure(era: Era, *, remembered: Era | None, answered: bool) -> Era | None:
    """Return the era to remember after a connect that failed in `era`; None to negotiate again.

    A failed connect forgets a remembered era: the server may have been upgraded.

    Args:
        era: the era that the connect ended in.
        remembered: the era that the connect began with; None after a negotiation.
        answered: True if the server refused ``initialize``, and so is modern.
    """
    # The era is not proven, but server/discover may have made the process exit or hang: do not send it again.
    return era if era == QUIRK and remembered is None and not answered else None


# --- Decide whether both sides have a protocol version in common. Pure functions --------------------------------------


_OWN_VERSIONS: Final = (*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS)


class NoCommonVersion(Exception):
    """The server answered with a protocol version that this client does not support."""

    def __init__(self, version: str) -> None:
        super().__init__(f"protocol version {plain_text(version, limit=60)!r} of the server is not supported")


def is_modern(version: str) -> bool:
    """Return True for a supported protocol version since 2026-07-28."""
    return version in MODERN_PROTOCOL_VERSIONS


def offered_versions(error: BaseException) -> list[str] | None:
    """Return the versions listed in a server's refusal, or None."""
    if isinstance(error, MCPError) and error.code == UNSUPPORTED_PROTOCOL_VERSION:
        match error.error.data:
            case {"supported": list(versions)} if all(isinstance(each, str) for each in versions):
                return versions
    return None


def older_version(error: Exception) -> str | None:
    """Return the newest version before the latest that a refusal of ``initialize`` names anywhere, or None."""
    text = f"{error.message} {error.data}" if isinstance(error, MCPError) else str(error)
    named = re.findall(r"\d{4}-\d\d-\d\d", text)
    return max({*named}.intersection(HANDSHAKE_PROTOCOL_VERSIONS[:-1]), default=None)


def incompatibility(config: ServerConfig, error: BaseException) -> str | None:
    """Return the remedy if the next negotiation would fail in the same way, else None."""
    offered = offered_versions(error)
    # The beginnings of the SDK's bare `RuntimeError` about versions.
    of_the_sdk = "Unsupported protocol version from the server", "No mutually supported modern protocol version"
    if isinstance(error, ValidationError):
        return "fix the server"
    if isinstance(error, MCPError):
        if error.code == INVALID_PARAMS:
            return "upgrade the server, or this program"
        refusal = error.code in (METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION)
        if config.protocol != "auto" and refusal:
            return f"if it does not support protocol={config.protocol!r}, use 'auto'"
        if not offered or any(each in _OWN_VERSIONS for each in offered):
            return None
    elif not isinstance(error, NoCommonVersion) and not str(error).startswith(of_the_sdk):
        return None
    return f"this client supports {_OWN_VERSIONS[0]} to {_OWN_VERSIONS[-1]}: upgrade the server, or this program"


# --- Validate messages of a server at a bounded cost ------------------------------------------------------------------

# Pydantic collects every error of a value before raising. A message of half a megabyte, within all limits, may have a
# million errors: in a list of content blocks, each zero is an error for each kind of block. Building and printing these
# takes many seconds and gigabytes. The validators below are the SDK's, except that each list, and each object with free
# keys, ends at its first bad item. They accept the same values and return the same objects.


FEW_VALUES: Final = 256
"""Values in a message that the SDK may validate by itself: their errors take few milliseconds."""

SHOWN_PROBLEM: Final = 400
"""Characters shown of a place in a result, and of its problem."""


@cache
def bounded(model: Any) -> SchemaValidator:
    """Return a validator of a model, or union, that stops at a collection's first bad item."""
    # Without `_use_prebuilt=False`, inner models would keep the validators of their classes.
    return SchemaValidator(_failing_fast(TypeAdapter(model).core_schema), _use_prebuilt=False)


def _failing_fast(schema: Any, strict: bool = False) -> Any:
    """Return a schema whose collections end at the first bad item, and whose ``isError`` is strictly a boolean."""
    if isinstance(schema, dict):
        without_schemas = ("cls", "config", "metadata", "serialization")  # without schemas for validation
        walked = {
            key: each if key in without_schemas else _failing_fast(each, strict or key == "is_error")
            for key, each in schema.items()
        }
        kind = walked.get("type")
        if strict and kind == "bool":
            return {**walked, "strict": True}
        return {**walked, "fail_fast": True} if kind in ("list", "tuple", "set", "frozenset", "dict") else walked
    if type(schema) in (list, tuple):
        return type(schema)(_failing_fast(each, strict) for each in schema)
    return schema


def parse_result(method: str, version: str, result: dict[str, Any], *, claimed: bool = False) -> Any:
    """Validate a result as the session does: by the schema of its version, and the class for callers.

    An extension reads a result of a type that is `claimed`: then return None.

    Raises:
        KeyError: the version has no such method.
        pydantic_core.ValidationError: the result does not conform to the protocol.
    """
    bounded(methods.SERVER_RESULTS[method, version]).validate_python(result, by_name=False)
    return None if claimed else bounded(methods.MONOLITH_RESULTS[method]).validate_python(result, by_name=False)


def check_request(method: str, version: str, params: Mapping[str, Any] | None) -> None:
    """Refuse a large invalid request or notification by its first errors; the session would build all.

    Raises:
        pydantic_core.ValidationError: the params do not conform to the protocol.
    """
    key = method, version
    model = methods.SERVER_REQUESTS.get(key) or methods.SERVER_NOTIFICATIONS.get(key)
    if model is None or not has_many(params):
        return
    message = {"method": method, "params": params}
    bounded(model).validate_python({"jsonrpc": "2.0", "id": 0, **message}, by_name=False)
    parsed = methods.MONOLITH_REQUESTS.get(method) or methods.MONOLITH_NOTIFICATIONS[method]
    bounded(parsed).validate_python(message, by_name=False)


def fits(method: str, version: str, params: Mapping[str, Any] | None) -> bool:
    try:
        check_request(method, version, params)
    except ValidationError:
        return False
    return True


def has_many(value: Any) -> bool:
    """Return True if a JSON value contains more than `FEW_VALUES` values, without looking at more."""
    seen, found = [value], 0
    for each in seen:  # grows meanwhile
        if type(each) is dict or type(each) is list:
            found += len(each)
            if found > FEW_VALUES:
                return True
            seen.extend(each.values() if type(each) is dict else each)
    return False


def without_later_fields(method: str, version: str, result: dict[str, Any]) -> None:
    """Drop fields of later versions, and correct `resultType` and `ttlMs`, as the SDK does before it validates."""
    later, modern = _later_fields(method, version)
    for key in later.intersection(result):
        del result[key]
    if modern:
        result.setdefault("resultType", "complete")  # the specification's default
    milliseconds = result.get("ttlMs")
    if type(milliseconds) in (int, float) and milliseconds < 0:  # type: ignore[operator]  # not None
        result["ttlMs"] = 0


@cache
def _later_fields(method: str, version: str) -> tuple[frozenset[str], bool]:
    """Return the fields of a result that only later versions define, and whether the version is modern."""
    own = methods.SERVER_RESULTS[method, version]
    versions = KNOWN_PROTOCOL_VERSIONS[KNOWN_PROTOCOL_VERSIONS.index(version) + 1 :]
    later = filter(None, (methods.SERVER_RESULTS.get((method, each)) for each in versions))
    return frozenset().union(*map(_fields, later)) - _fields(own), is_modern(version)


def _fields(models: Any) -> frozenset[str]:
    """Return the JSON names of the fields of a model, or of a union of models."""
    members = getattr(models, "__args__", (models,))
    return frozenset(each.alias or name for model in members for name, each in model.model_fields.items())


def first_problem(exc: ValidationError, mask: Callable[[str], str], *, skip: int = 0) -> str:
    """Return the first place at which a message violates the protocol, and how, without quoting data.

    The first `skip` steps of the place are hidden, and credentials masked.
    """
    problems = exc.errors(include_url=False, include_context=False, include_input=False)
    questions = ("InputRequiredResult", "inputRequests"), ("params",)
    asked = [each for each in problems if each["loc"][:2] == questions[0] or each["loc"][:1] == questions[1]]
    other = {each["loc"][:-1] for each in asked if each["loc"][-1] in ("method", "mode")}  # other kinds of questions
    likely = [each for each in asked if not any(each["loc"][:at] in other for at in range(len(each["loc"])))]
    shown = likely or asked or problems
    first, steps = shown[0], [str(step) for step in shown[0]["loc"][skip:]]
    if asked:  # without the names of the classes of questions
        steps = [step for at, step in enumerate(steps) if at == 2 or not hasattr(types, step)]
    alike = [each for each in problems if each["type"] == first["type"] == "missing" and each is not first]
    alike = [each for each in alike if each["loc"][:-1] == first["loc"][:-1]]
    where = ", ".join([".".join(steps) or "top level", *(str(each["loc"][-1]) for each in alike)])
    others = len(shown) - 1 - len(alike)
    more = f", and {others} more" if others else ""
    return plain_text(mask(f"at {where}: {first['msg'].lower()}"), limit=SHOWN_PROBLEM) + more
