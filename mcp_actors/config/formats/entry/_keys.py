"""The known keys of an entry, by what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...transports import Kind

SETTINGS: Final = "mcp_actors"
"""The key of an entry with the settings of this package."""

KINDS: Final[Mapping[str, Kind]] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamableHttp": "http",
    "sse": "sse",
}
"""The values of ``type``."""

TRANSPORT: Final[Mapping[str, str]] = {
    "args": "args",
    "cwd": "cwd",
    "env": "env",
    "env_vars": "env_from",
    "url": "url",
    "serverUrl": "url",
    "httpUrl": "url",
    "headers": "headers",
    "http_headers": "headers",
    "auth": "auth",
    "bearer_token": "auth",
}
"""Key → the field of `Stdio`, `Http` or `Sse` that it sets."""

SERVER: Final[Mapping[str, str]] = {
    "required": "required",
    "title": "title",
    "startup_timeout_ms": "connect_timeout",
    "startup_timeout_sec": "connect_timeout",
    "tool_timeout_sec": "request_timeout",
}
"""Key → the field of `ServerConfig` that it sets."""

SHOWN_TOOLS: Final = ("enabled_tools", "includeTools", "tools")
HIDDEN_TOOLS: Final = ("disabled_tools", "excludeTools", "disabledTools")

SPECIAL: Final = frozenset(
    {
        "command",
        "type",
        "transport",
        "enabled",
        "disabled",
        "bearer_token_env_var",
        "env_http_headers",
        "oauth",
        SETTINGS,
    }
)
"""Keys that set a field in a way of their own."""

IGNORED: Final = frozenset(
    {
        "alwaysAllow",
        "autoApprove",
        "autoStart",
        "default_tools_approval_mode",
        "description",
        "dev",
        "experimental_environment",
        "gallery",
        "icon",
        "icons",
        "instructions",
        "metadata",
        "name",
        "networkTimeout",
        "oauth_resource",
        "scopes",
        "source",
        "supports_parallel_tool_calls",
        "tags",
        "trust",
        "version",
    }
)
"""Keys that do not concern the connection, but what other programs ask, show or remember."""

NOT_DONE: Final[Mapping[str, str]] = {
    "authProviderType": "give headers or a bearer token",
    "envFile": "set the variables before the start, and list those to pass on in mcp_actors.env_from",
    "headersHelper": "give the header with a ${VARIABLE}, or a function in Python",
    "requestInit": "give headers",
    "sandbox": "the server is not confined",
    "sandboxEnabled": "the server is not confined",
    "settings": "the settings of a Zed extension cannot be passed on",
    "timeout": (
        "some programs read it as seconds and others as milliseconds; set mcp_actors.request_timeout, in seconds"
    ),
}
"""Keys of other programs that are not supported here, each with a remedy."""

KNOWN: Final = frozenset({*TRANSPORT, *SERVER, *SHOWN_TOOLS, *HIDDEN_TOOLS, *SPECIAL, *IGNORED, *NOT_DONE})

WITH_EFFECT: Final = KNOWN - IGNORED - NOT_DONE.keys()
"""Keys that this package uses."""

ONLY_COMMAND: Final = ("args", "cwd", "env", "env_from")
ONLY_URL: Final = ("headers", "auth")
