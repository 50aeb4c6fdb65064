"""Convert manifests of ``kind: MCPServer`` into entries of the form of ``mcpServers``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..._errors import ConfigError
from ..formats import Entry, bad, child, found
from ._intervals import seconds_of
from ._yaml import Document

KIND: Final = "MCPServer"

TYPED_KEYS: Final = frozenset(
    {
        "annotations",
        "disabled",
        "enabled",
        "fallbackToStatic",
        "inputSchema",
        "mcp_actors",
        "onStartup",
        "outputSchema",
        "required",
    }
)
"""The keys of a manifest below which values may be numbers, booleans or null; everything else is text."""

_TRANSPORTS: Final = frozenset({"stdio", "http", "sse", "streamable-http"})
_OF_DOCUMENT: Final = ("apiVersion", "kind", "metadata", "spec")
_OF_METADATA: Final = ("name", "labels", "annotations", "namespace")
_OF_SPEC: Final = ("provider", "configuration", "authentication", "discovery", "tools", "description")
_OF_DISCOVERY: Final = ("enabled", "refreshInterval", "onStartup", "fallbackToStatic")
_OF_AUTHENTICATION: Final = ("type", "token", "key", "header")


def entry_of(file: str, document: Document) -> Entry:
    """Return the entry of a manifest; an error in it is the entry's.

    Raises:
        ConfigError: this is not a manifest, or it has no name.
    """
    manifest = _Manifest(f"{file}:{document.line}")
    data = manifest.mapping("", document.data, _OF_DOCUMENT)
    if data.get("kind") != KIND:
        raise bad(manifest.source, "kind", f"found {found(data.get('kind'))}; write {KIND!r}")
    metadata = manifest.mapping("metadata", data.get("metadata"), _OF_METADATA)
    name = metadata.get("name")
    if not isinstance(name, str):
        raise bad(manifest.source, "metadata.name", f"found {found(name)}; write the name of the server")
    try:
        value: object = manifest.entry(data.get("spec"))
    except ConfigError as error:
        value = error
    return Entry(name, value, manifest.source, "metadata", "spec.configuration")


class _Manifest:
    """A manifest that is being read.

    Attributes:
        source: the file and the line, for messages.
    """

    def __init__(self, source: str) -> None:
        self.source = source

    def entry(self, spec: object) -> dict[str, Any]:
        """Return the specification as an entry of the form of ``mcpServers``."""
        spec = self.mapping("spec", spec, _OF_SPEC)
        given = spec.get("configuration")
        if not isinstance(given, Mapping):
            raise self.wrong("spec.configuration", given, "an object with 'command' or 'url'")
        entry = dict(given)
        if "endpoint" in entry and "url" not in entry:
            entry["url"] = entry.pop("endpoint")
        self._provider(spec.get("provider"), entry)
        self._authentication(spec.get("authentication"), entry)
        self._discovery(spec.get("discovery"), spec.get("tools"), entry)
        return entry

    def mapping(self, path: str, value: object, keys: tuple[str, ...]) -> Mapping[str, Any]:
        """Return an object with some of these keys; an unknown key is an error, as these files are for us."""
        if not isinstance(value, Mapping):
            raise self.wrong(path, value, f"an object with {', '.join(map(repr, keys))}")
        for key in value:
            if key not in keys:
                choices = ", ".join(map(repr, keys))
                raise bad(self.source, child(path, key), f"this key is not known; the keys here are {choices}")
        return value

    def wrong(self, path: str, value: object, remedy: str) -> ConfigError:
        """Return the error for a value."""
        return bad(self.source, path, f"found {found(value)}; write {remedy}")

    def _provider(self, provider: object, entry: dict[str, Any]) -> None:
        """Take the transport from a provider that names one (``http``, ``mcp-http``); any other is a label."""
        if not isinstance(provider, str | None):
            raise self.wrong("spec.provider", provider, "a string")
        transport = (provider or "").removeprefix("mcp-")
        if transport in _TRANSPORTS and not entry.keys() & {"type", "transport"}:
            entry["type"] = transport

    def _authentication(self, authentication: object, entry: dict[str, Any]) -> None:
        if authentication is None:
            return
        path = "spec.authentication"
        given = self.mapping(path, authentication, _OF_AUTHENTICATION)
        match given.get("type"):
            case "bearer":
                entry["auth"] = self._text(path, given, "token")
            case "api-key":
                header = self._text(path, given, "header") if "header" in given else "X-API-Key"
                headers = entry.get("headers") or {}
                if not isinstance(headers, Mapping):
                    raise self.wrong("spec.configuration.headers", headers, "an object")
                entry["headers"] = {**headers, header: self._text(path, given, "key")}
            case "none":
                pass
            case other:
                raise self.wrong(f"{path}.type", other, "'bearer', 'api-key' or 'none'")

    def _text(self, path: str, given: Mapping[str, Any], key: str) -> str:
        value = given.get(key)
        if not isinstance(value, str) or not value:
            raise self.wrong(child(path, key), value, "a string, for example ${VARIABLE}")
        return value

    def _discovery(self, discovery: object, tools: object, entry: dict[str, Any]) -> None:
        """Turn the words about tools into settings of this package."""
        path = "spec.discovery"
        given = self.mapping(path, {} if discovery is None else discovery, _OF_DISCOVERY)
        settings = entry.get("mcp_actors") or {}
        if not isinstance(settings, Mapping):
            raise self.wrong("spec.configuration.mcp_actors", settings, "an object with settings")
        settings = dict(settings)
        if "refreshInterval" in given:
            seconds = seconds_of(given["refreshInterval"], f"{self.source}: {path}.refreshInterval")
            settings.setdefault("refresh_interval", seconds)
        if not self._flag(path, given, "onStartup", default=True):
            settings.setdefault("connect", "lazy")
        declared = list(self._tools(tools))
        if self._flag(path, given, "fallbackToStatic", default=bool(declared)):
            settings.setdefault("static_tools", declared)
        if not self._flag(path, given, "enabled", default=True):
            settings.setdefault("tools", {"allow": [tool["name"] for tool in declared]})
        if settings:
            entry["mcp_actors"] = settings

    def _flag(self, path: str, given: Mapping[str, Any], key: str, *, default: bool) -> bool:
        value = given.get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(child(path, key), value, "true or false")
        return value

    def _tools(self, tools: object) -> Iterator[Mapping[str, Any]]:
        """Yield the declared tools; one without a schema takes any arguments."""
        if tools is None:
            return
        if not isinstance(tools, list):
            raise self.wrong("spec.tools", tools, "a list of tools")
        for index, tool in enumerate(tools):
            if not isinstance(tool, Mapping) or not isinstance(tool.get("name"), str):
                raise self.wrong(f"spec.tools[{index}]", tool, "an object with 'name'")
            yield {"inputSchema": {"type": "object"}, **tool}
