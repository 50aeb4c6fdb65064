"""Validate messages of a server at a bounded cost.

Pydantic collects every error of a value before it raises. A message of half a megabyte, within all limits, may have a
million of them: each zero in a list of content blocks is an error for each kind of block. To build and print them
takes many seconds and gigabytes. The validators of this file are those of the SDK's models, except that each list and
each object with free keys ends at its first bad item. They accept the same values and return the same objects.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from mcp.types import methods
from mcp.types.version import KNOWN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter
from pydantic_core import SchemaValidator, ValidationError

from ._versions import is_modern

if TYPE_CHECKING:
    from collections.abc import Mapping

FEW: Final = 256
"""Values in a message that the SDK may validate in its own way: their errors are built in a few milliseconds."""

COLLECTIONS: Final = frozenset({"list", "tuple", "set", "frozenset", "dict"})
"""The schemas with any number of items."""

NOT_WALKED: Final = frozenset({"cls", "config", "metadata", "serialization"})
"""The members of a schema that contain no schema for validation."""


@cache
def bounded(model: Any) -> SchemaValidator:
    """Return the validator of a model, or of a union of models, that stops at the first bad item of a collection."""
    # Without `_use_prebuilt=False`, the models within this one would keep the validators of their classes.
    return SchemaValidator(_failing_fast(TypeAdapter(model).core_schema), _use_prebuilt=False)


def _failing_fast(schema: Any) -> Any:
    if isinstance(schema, dict):
        walked = {key: each if key in NOT_WALKED else _failing_fast(each) for key, each in schema.items()}
        kind = walked.get("type")
        return {**walked, "fail_fast": True} if isinstance(kind, str) and kind in COLLECTIONS else walked
    if type(schema) in (list, tuple):
        return type(schema)(map(_failing_fast, schema))
    return schema


def is_costly(method: str, version: str, result: Any) -> bool:
    """Return True if a result has a schema, and so many values that `check_result` is due."""
    return (method, version) in methods.SERVER_RESULTS and has_many(result)


def parse_result(method: str, version: str, result: dict[str, Any]) -> Any:
    """Validate a result with the schema of its version and the class that callers get, as the session does.

    Raises:
        KeyError: the version has no such method.
        pydantic_core.ValidationError: the result does not conform to the protocol.
    """
    bounded(methods.SERVER_RESULTS[method, version]).validate_python(result, by_name=False)
    return bounded(methods.MONOLITH_RESULTS[method]).validate_python(result, by_name=False)


def check_result(method: str, version: str, result: dict[str, Any], *, claimed: bool) -> None:
    """Refuse a large result that the session would refuse too, but after all of its errors were built.

    Args:
        method: the protocol's method.
        version: the protocol version of the session.
        result: the parsed ``result`` of the answer, as the session is about to validate it.
        claimed: whether an extension reads results of this type.

    Raises:
        pydantic_core.ValidationError: the result does not conform to the protocol.
    """
    bounded(methods.SERVER_RESULTS[method, version]).validate_python(result, by_name=False)
    if not claimed:
        bounded(methods.MONOLITH_RESULTS[method]).validate_python(result, by_name=False)


def check_request(method: str, version: str, params: Mapping[str, Any] | None) -> None:
    """Do the same for a request of a server, or its notification.

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
    """Return False if `check_request` refuses a message."""
    try:
        check_request(method, version, params)
    except ValidationError:
        return False
    return True


def has_many(value: Any) -> bool:
    """Return True if a JSON value contains more than `FEW` values. It looks at no more of them."""
    seen, found = [value], 0
    for each in seen:  # which grows meanwhile
        if type(each) is dict or type(each) is list:
            found += len(each)
            if found > FEW:
                return True
            seen.extend(each.values() if type(each) is dict else each)
    return False


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
        result.setdefault("resultType", "complete")  # the specification's default
    milliseconds = result.get("ttlMs")
    if type(milliseconds) in (int, float) and milliseconds < 0:  # type: ignore[operator]  # not None
        result["ttlMs"] = 0


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
