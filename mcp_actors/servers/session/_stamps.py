"""Complete requests as each protocol era wants them.

Up to 2025-11-25 a request has a header for its version. Since 2026-07-28 a server remembers nothing of a client, so
each request names the version, the client and its capabilities in ``_meta``. Over HTTP its method, what it names, and
the arguments that the tool's schema marks are headers too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import define, field, frozen
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp.types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY
from pydantic_core import to_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mcp.types import ClientCapabilities, Implementation, Tool

    from ...transports import Json


@frozen
class LegacyStamp:
    """Completes requests up to 2025-11-25, where a handshake has said the rest."""

    version: str
    members: bytes | None = None
    """The ``_meta`` of every request as a member of JSON text; None if it has none."""

    def stamp(self, method: str, params: Json) -> dict[str, str]:
        """Complete the params of a request, and return its headers."""
        return {MCP_PROTOCOL_VERSION_HEADER: self.version}

    def note_tools(self, tools: Sequence[Tool]) -> None:
        """Do nothing: no argument is a header."""


@define(eq=False)
class ModernStamp:
    """Completes requests since 2026-07-28, each of which says everything."""

    version: str
    _meta: Json
    members: bytes = field(init=False)
    """As for `LegacyStamp`."""
    _schemas: dict[str, Json] = field(factory=dict, init=False)
    _mirrored: dict[str, Mapping[tuple[str, ...], str]] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.members = to_json({"_meta": self._meta})[1:-1]

    def stamp(self, method: str, params: Json) -> dict[str, str]:
        """Complete the params of a request, and return its headers."""
        params["_meta"] = {**(params.get("_meta") or {}), **self._meta}
        headers = {MCP_PROTOCOL_VERSION_HEADER: self.version, MCP_METHOD_HEADER: method}
        name: Any = params.get(NAME_BEARING_METHODS.get(method, ""))
        if isinstance(name, str):
            headers[MCP_NAME_HEADER] = encode_header_value(name)
            if method == "tools/call" and (mirrored := self._mirrored_by(name)):
                headers |= mcp_param_headers(mirrored, params.get("arguments") or {})
        return headers

    def note_tools(self, tools: Sequence[Tool]) -> None:
        """Note all tools of the server, whose schemas say which of their arguments are headers."""
        self._schemas = {tool.name: tool.input_schema for tool in tools}
        self._mirrored.clear()

    def _mirrored_by(self, tool: str) -> Mapping[tuple[str, ...], str]:
        """Return which arguments of a tool are headers; nothing if the tool is not listed."""
        if tool not in self._schemas:
            return {}
        if tool not in self._mirrored:
            self._mirrored[tool] = x_mcp_header_map(self._schemas[tool])
        return self._mirrored[tool]


Stamp: TypeAlias = LegacyStamp | ModernStamp


def modern_stamp(version: str, info: Implementation, capabilities: ClientCapabilities) -> ModernStamp:
    """Return the stamp of a version since 2026-07-28."""
    return ModernStamp(
        version,
        {
            PROTOCOL_VERSION_META_KEY: version,
            CLIENT_INFO_META_KEY: info.model_dump(by_alias=True, mode="json", exclude_none=True),
            CLIENT_CAPABILITIES_META_KEY: capabilities.model_dump(by_alias=True, mode="json", exclude_none=True),
        },
    )
