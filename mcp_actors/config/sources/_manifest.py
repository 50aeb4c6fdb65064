"""Convert manifests of ``kind: MCPServer`` into entries of the form of ``mcpServers``.

Unlike the files of other programs, these are written for programs like this one. So a key without effect is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..._errors import ConfigError
from ..._foreign import Log
from ..._misuse import is_number, is_seconds, is_whole
from ..._text import plain_text
from ..formats import WITH_EFFECT, Entry, bad, child, did_you_mean, found, nearest
from ._intervals import seconds_of
from ._yaml import Document

logger = Log("mcp_actors.config")

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
        "parameters",
        "required",
        "retries",
        "timeout",
    }
)
"""The keys of a manifest below which values may be numbers, booleans or null; everything else is text."""

_TRANSPORTS: Final = frozenset({"stdio", "http", "sse", "streamable-http"})
_OF_DOCUMENT: Final = ("apiVersion", "kind", "metadata", "spec")
_OF_METADATA: Final = ("name", "labels", "annotations", "namespace")
_OF_SPEC: Final = ("provider", "configuration", "authentication", "discovery", "tools", "displayName", "description")
_OF_DISCOVERY: Final = ("enabled", "refreshInterval", "onStartup", "fallbackToStatic")
_OF_AUTHENTICATION: Final = ("type", "token", "key", "header", "credentials")
_OF_RETRIES: Final = ("maxAttempts", "backoff", "initialDelay")

_SPELLINGS: Final[Mapping[str, str]] = {
    "baseUrl": "url",
    "endpoint": "url",
    "environment": "env",
    "workingDir": "cwd",
}
"""Key of a manifest's configuration → key of an entry."""

_OF_CONFIGURATION: Final = frozenset({*WITH_EFFECT, *_SPELLINGS, "timeout", "retries"})
_ONLY_COMMAND: Final = frozenset({"args", "cwd", "env", "env_vars"})
_ONLY_URL: Final = frozenset({"auth", "headers"})

_JITTER: Final = 0.5  # as in `RetryPolicy`: requests that have failed together are not repeated together

_NAMED_IN_ERRORS: Final = 12
"""Keys that an error lists; of more it shows only the nearest."""


def entry_of(file: str, document: Document) -> Entry | None:
    """Return the entry of a manifest; an error in it is the entry's. None if the document is of another kind.

    Raises:
        ConfigError: this is not a manifest, or it has no name.
    """
    manifest = _Manifest(f"{file}:{document.line}")
    if manifest.is_of_another_kind(document.data):
        return None
    data = manifest.mapping("", document.data, _OF_DOCUMENT)
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

    def is_of_another_kind(self, data: object) -> bool:
        """Return True, and log it, if a document says that it is something else than a server.

        Raises:
            ConfigError: it does not say what it is, or the word is misspelled.
        """
        if not isinstance(data, Mapping):
            return False
        kind = data.get("kind")
        if kind == KIND:
            return False
        if not isinstance(kind, str) or nearest(kind, (KIND,)) is not None:
            raise bad(self.source, "kind", f"found {found(kind)}; write {KIND!r}")
        shown = plain_text(kind, limit=40)
        logger.info("%s: this document of kind %r is skipped; servers are of kind %r", self.source, shown, KIND)
        return True

    def entry(self, spec: object) -> dict[str, Any]:
        """Return the specification as an entry of the form of ``mcpServers``."""
        spec = self.mapping("spec", spec, _OF_SPEC)
        given = spec.get("configuration")
        if not isinstance(given, Mapping):
            raise self.wrong("spec.configuration", given, "an object with 'command' or 'url'")
        entry = self._configuration(given)
        settings = entry.get("mcp_actors") or {}
        if not isinstance(settings, Mapping):
            raise self.wrong("spec.configuration.mcp_actors", settings, "an object with settings")
        settings = dict(settings)
        self._provider(spec.get("provider"), entry)
        self._authentication(spec.get("authentication"), entry)
        self._suited(entry, given)
        self._set("spec.displayName", settings, "title", spec.get("displayName"))
        self._timeout(entry.pop("timeout", None), settings)
        self._retries(entry.pop("retries", None), settings)
        self._discovery(spec.get("discovery"), spec.get("tools"), settings)
        if settings:
            entry["mcp_actors"] = settings
        return entry

    def mapping(self, path: str, value: object, keys: tuple[str, ...]) -> Mapping[str, Any]:
        """Return an object with some of these keys; an unknown key is an error."""
        if not isinstance(value, Mapping):
            raise self.wrong(path, value, f"an object with {', '.join(map(repr, keys))}")
        for key in value:
            if key not in keys:
                raise self._unknown(child(path, key), key, keys)
        return value

    def wrong(self, path: str, value: object, remedy: str) -> ConfigError:
        """Return the error for a value."""
        return bad(self.source, path, f"found {found(value)}; write {remedy}")

    def _unknown(self, path: str, key: str, keys: tuple[str, ...]) -> ConfigError:
        if 0 < len(keys) <= _NAMED_IN_ERRORS:
            problem = f"this key is not known; the keys here are {', '.join(map(repr, keys))}"
        else:
            problem = f"this key has no effect here{did_you_mean(key, keys)}; remove it"
        return bad(self.source, path, problem)

    def _set(self, path: str, settings: dict[str, Any], name: str, value: object) -> None:
        """Set one of this package's settings, unless the value is None.

        Raises:
            ConfigError: ``mcp_actors`` sets it, too.
        """
        if value is None:
            return
        if name in settings:
            raise bad(self.source, path, f"'mcp_actors.{name}' sets the same option; remove one of them")
        settings[name] = value

    def _configuration(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the configuration in the words of an entry."""
        path = "spec.configuration"
        entry: dict[str, Any] = {}
        for key, value in given.items():
            if key not in _OF_CONFIGURATION:
                raise self._unknown(child(path, key), key, tuple(sorted(_OF_CONFIGURATION)))
            name = _SPELLINGS.get(key, key)
            if name in entry:
                same = next(other for other in given if _SPELLINGS.get(other, other) == name)
                raise bad(self.source, path, f"{same!r} and {key!r} set the same option; remove one of them")
            entry[name] = value
        return entry

    def _provider(self, provider: object, entry: dict[str, Any]) -> None:
        """Take the transport from a provider that names one (``http``, ``mcp-http``); any other is a label."""
        if not isinstance(provider, str | None):
            raise self.wrong("spec.provider", provider, "a string")
        transport = (provider or "").removeprefix("mcp-")
        if transport in _TRANSPORTS and not entry.keys() & {"type", "transport"}:
            entry["type"] = transport

    def _suited(self, entry: dict[str, Any], given: Mapping[str, Any]) -> None:
        """Refuse what is only for a URL next to a command, and the reverse."""
        others, what = (_ONLY_URL, "a URL") if "command" in entry else (_ONLY_COMMAND, "a command")
        for key in sorted(entry.keys() & others if entry.keys() & {"command", "url"} else ()):
            written = [name for name in given if _SPELLINGS.get(name, name) == key]
            path = child("spec.configuration", written[0]) if written else "spec.authentication"
            raise bad(self.source, path, f"this has no effect, because it is only for a server with {what}; remove it")

    def _authentication(self, authentication: object, entry: dict[str, Any]) -> None:
        if authentication is None:
            return
        path = "spec.authentication"
        given = self.mapping(path, authentication, _OF_AUTHENTICATION)
        if (kind := given.get("type")) not in ("bearer", "api-key", "none"):
            raise self.wrong(f"{path}.type", kind, "'bearer', 'api-key' or 'none'")
        if "credentials" in given:
            # In here, ``key`` is the name of the header. Next to ``type`` it is the secret.
            keys = {"bearer": ("token",), "api-key": ("key", "value"), "none": ()}[kind]
            self.mapping(path, given, ("type", "credentials"))
            path = f"{path}.credentials"
            given = self.mapping(path, given["credentials"], keys)
            header, secret = "key", "value"
        else:
            keys = {"bearer": ("token",), "api-key": ("key", "header"), "none": ()}[kind]
            self.mapping(path, given, ("type", *keys))
            header, secret = "header", "key"
        if kind == "bearer":
            entry["auth"] = self._text(path, given, "token")
        elif kind == "api-key":
            name = self._text(path, given, header) if header in given else "X-API-Key"
            headers = entry.get("headers") or {}
            if not isinstance(headers, Mapping):
                raise self.wrong("spec.configuration.headers", headers, "an object")
            entry["headers"] = {**headers, name: self._text(path, given, secret)}

    def _text(self, path: str, given: Mapping[str, Any], key: str) -> str:
        value = given.get(key)
        if not isinstance(value, str) or not value:
            raise self.wrong(child(path, key), value, "a string, for example ${VARIABLE}")
        return value

    def _timeout(self, seconds: object, settings: dict[str, Any]) -> None:
        path = "spec.configuration.timeout"
        if seconds is not None and not is_seconds(seconds):
            raise self.wrong(path, seconds, "a positive number of seconds")
        self._set(path, settings, "request_timeout", seconds)

    def _retries(self, retries: object, settings: dict[str, Any]) -> None:
        """Turn the words about retries into a policy. ``initialDelay`` is in milliseconds."""
        if retries is None:
            return
        path = "spec.configuration.retries"
        given = self.mapping(path, retries, _OF_RETRIES)
        policy: dict[str, Any] = {}
        if "maxAttempts" in given:
            if not is_whole(given["maxAttempts"], 1):
                raise self.wrong(f"{path}.maxAttempts", given["maxAttempts"], "a whole number of 1 or more")
            policy["attempts"] = given["maxAttempts"]
        if given.keys() & {"backoff", "initialDelay"}:
            growth = given.get("backoff", "exponential")
            if growth not in ("exponential", "fixed"):
                raise self.wrong(f"{path}.backoff", growth, "'exponential' or 'fixed'")
            delay = given.get("initialDelay", 1000)
            if not is_number(delay) or not 0 <= delay < 24 * 3600 * 1000:
                raise self.wrong(f"{path}.initialDelay", delay, "a number of milliseconds")
            factor = 2.0 if growth == "exponential" else 1.0
            first = delay / 1000
            policy["backoff"] = {"first": first, "initial": first * factor, "factor": factor, "jitter": _JITTER}
        self._set(path, settings, "retry", policy)

    def _discovery(self, discovery: object, tools: object, settings: dict[str, Any]) -> None:
        """Turn the words about tools into settings of this package."""
        path = "spec.discovery"
        given = self.mapping(path, {} if discovery is None else discovery, _OF_DISCOVERY)
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
            path = f"spec.tools[{index}]"
            if not isinstance(tool, Mapping) or not isinstance(tool.get("name"), str):
                raise self.wrong(path, tool, "an object with 'name'")
            if "parameters" not in tool:
                yield {"inputSchema": {"type": "object"}, **tool}
                continue
            if "inputSchema" in tool:
                raise bad(self.source, path, "'parameters' and 'inputSchema' say the same; remove one of them")
            schema = self._schema(f"{path}.parameters", tool["parameters"])
            yield {**{key: value for key, value in tool.items() if key != "parameters"}, "inputSchema": schema}

    def _schema(self, path: str, parameters: object) -> dict[str, Any]:
        """Return the schema of an object with these parameters, each of which says whether it is required."""
        if not isinstance(parameters, Mapping):
            raise self.wrong(path, parameters, "an object with the parameters")
        properties, required = {}, []
        for name, parameter in parameters.items():
            if not isinstance(parameter, Mapping):
                raise self.wrong(child(path, name), parameter, "an object with 'type'")
            properties[name] = {key: value for key, value in parameter.items() if key != "required"}
            if self._flag(child(path, name), parameter, "required", default=False):
                required.append(name)
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        return {**schema, "required": required} if required else schema
