"""Define `ServerConfig`, `LoadedConfig` (the result of a load) and the protocol `Source`.

A `Source` reads servers from a file or table. ``ServerConfig.source`` is a str that names the file or table. A default
or validator of `ServerConfig` may use only earlier fields. Nothing here does I/O.

Owns: nothing.
Writes: nothing.
Calls: _hooks, _policies, _template, _tools, _transports, _validators.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from enum import IntEnum
from typing import Any, Final, Literal, Protocol, get_args, runtime_checkable

import attrs
from attrs import Factory, field, frozen
from mcp.client import ClientExtension
from mcp.types import Implementation, Tool

from .._backoff import Backoff
from .._errors import ConfigError
from .._misuse import explained
from .._pickling import Frozen
from . import _validators as check
from ._hooks import Callbacks, Middleware, check_extensions, check_middleware, to_extensions, to_middleware
from ._policies import BreakerPolicy, HealthPolicy, Limits, RestartPolicy, RetryPolicy
from ._template import Transport, kind_of
from ._tools import ToolFilter, check_static_tools, to_static_tools
from ._transports import SERVER_NAME, Socket, Sse

_check_seconds: Final = check.seconds()
_check_optional_seconds: Final = check.seconds(optional=True)
_check_transport: Final = check.kind(
    *get_args(Transport),
    remedy='give Stdio("program"), Http("https://…"), Sse("https://…"), Socket("host:port") or InProcess(server)',
)
_check_restart: Final = check.kind(RestartPolicy, more="; RestartPolicy(max_restarts=0) disables restarting")
_check_retry: Final = check.kind(RetryPolicy, more="; RetryPolicy(attempts=1) disables retrying")
_check_health: Final = check.kind(HealthPolicy, more="; HealthPolicy(interval=None) disables health checks")
_check_title: Final = check.kind(str, type(None), remedy="give a str, or None")
_check_source: Final = check.kind(str, type(None), remedy="give the path of a file as a str, or None")

_check_tools: Final = check.kind(ToolFilter, remedy="give a ToolFilter(allow=…, deny=…, patterns=…, predicate=…)")
_check_client_info: Final = check.kind(
    Implementation, type(None), remedy='give an mcp.types.Implementation(name="…", version="…"), or None'
)


def _check_name(instance: ServerConfig, attribute: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, str) or not SERVER_NAME.fullmatch(value):
        remedy = "use 1 to 64 of the characters A-Z a-z 0-9 _ . -"
        if type(value).__module__.startswith("mcp_actors"):
            remedy = f'the name comes first: ServerConfig("name", {type(value).__name__}(…))'
        message = f"server {check.shown(value)}: this is not a valid server name; {remedy}"
        raise ConfigError(message, source="ServerConfig", path="name")


def _startup_timeout(config: ServerConfig) -> float | None:
    """Return the default of ``startup_timeout``: 300, or a ``connect_timeout`` below 30 or above 300."""
    connect = config.connect_timeout
    if connect is None or not check.is_positive(connect):  # the validator refuses an invalid value
        return None
    # Below 30 s, the default, the user wants an answer soon. Downloading, unpacking and starting a package over a slow
    # line takes up to 300 s.
    return connect if connect < 30 else max(300.0, connect)


def _restarts(config: ServerConfig) -> RestartPolicy:
    if not isinstance(config.transport, Socket):
        return RestartPolicy()
    # A gateway is replaced within seconds, and refuses connections at once while away.
    backoff = Backoff(first=0.0, initial=1.0, maximum=5.0, factor=2.0, jitter=0.1)
    return RestartPolicy(max_restarts=10, reset_after=5.0, backoff=backoff, park_retry=5.0)


def _check_lazy(instance: ServerConfig, attribute: attrs.Attribute[Any], value: object) -> None:
    if value == "lazy" and instance.required:
        remedy = "a required server is connected when the group is opened; remove required=True, or use 'eager'"
        raise check.refused_value(instance, attribute.name, value, remedy)


def _check_protocol(instance: ServerConfig, attribute: attrs.Attribute[Any], value: object) -> None:
    check.one_of("auto", "legacy", "2026-07-28")(instance, attribute, value)
    if isinstance(instance.transport, Sse) and value not in ("auto", "legacy"):
        remedy = 'leave it out, or use Http("https://…") if the server speaks streamable HTTP'
        raise check.refused_text(instance, "protocol", f"{value!r} over Sse(…), an older transport,", remedy)


def _check_replicas(instance: ServerConfig, attribute: attrs.Attribute[Any], value: object) -> None:
    check.at_least_one(instance, attribute, value)
    kind = kind_of(instance.transport)
    if value == 1:
        return
    if kind != "stdio":
        what = {"inprocess": "a server in this process", "socket": "a gateway"}.get(kind, "a server over HTTP")
        problem = f"replicas are processes, and {what} has none to start"
        remedy = f"{problem}; leave it out, and raise max_in_flight if needed"
    elif instance.max_in_flight == 1:
        remedy = "max_in_flight=1 says that requests depend on those before them, which another process does not get; "
        remedy += "remove one of the two"
    elif instance.on_failure == "raise":
        remedy = "on_failure='raise' ends the group with the first process that fails for good; remove one of the two"
    else:
        return
    raise check.refused_value(instance, attribute.name, value, remedy)


@explained
@check.brief
@frozen
class ServerConfig:
    """One server of a group. Nothing is connected, looked up or resolved before use.

    Args:
        name: 1 to 64 of the characters ``A-Z a-z 0-9 _ . -``, unique in the group.
        transport: `Stdio`, `Http`, `Sse`, `Socket` or `InProcess`.
        required: True fails the start of the group if this server cannot start. Default False.
        tool_filter: the tools to show and to allow in calls. Default: all.
        request_timeout: seconds from call to answer, including the time in the queue. None disables the limit. Default
            60.
        connect_timeout: seconds for a whole connect: socket, negotiation, tool list. For a process, the time starts
            when it has read its input. Callers wait no longer than the limit, unless the server is `required`. None
            disables the limit. Default 30.
        connect: ``"eager"`` (default) connects when the group is opened, ``"lazy"`` at the first request. A lazy server
            shows no tools before (except tools remembered in a ``catalog_store``), and cannot be `required`.
        when_down: what a request does while the server is not serving: ``"wait"`` (default), within `request_timeout`,
            or ``"fail"`` at once. Every request waits for the first connect and for an explicit restart.
        max_in_flight: concurrent requests to the server; 1 serializes all. Default 64.
        restarts: how often and how soon to restart. Default ``RestartPolicy()``; for a `Socket`, whose gateway is
            awaited for half a minute and then tried every 5 s, ``RestartPolicy(max_restarts=10, reset_after=5,
            backoff=Backoff(first=0, initial=1, maximum=5, jitter=0.1), park_retry=5)``.
        retry: how often a failed request is sent again, if safe. Default ``RetryPolicy()``.
        callbacks: functions to answer the server's requests and receive notifications. Unset fields (default: all) are
            the group's.
        middleware: functions ``(request, call_next)`` around every tool call, the first outermost. They run in the task
            of the caller, within the time of the request, take none of `max_in_flight`, and run again at each `retry`.
        protocol: the protocol era: ``"auto"`` (default) detects the era and remembers it for restarts; ``"legacy"`` and
            ``"2026-07-28"`` require one.

    Other Parameters:
        enabled: False keeps the entry but skips the server. Default True.
        title: the name for people, in `ServerGroup.status`. Default None: `name`.
        on_failure: after all restarts, ``"park"`` (default) leaves the server ``failed`` and retries every
            ``RestartPolicy.park_retry`` seconds; ``"raise"`` ends the group.
        startup_timeout: seconds from the start of a process until it has read its input. None disables the limit.
            Default 300, or `connect_timeout` if below 30, above 300 or None.
        progress_timeout: seconds a sent request may go without answer or progress notification, within
            `request_timeout`. None (default) disables the limit.
        idle_timeout: seconds without a request or subscription (up to a tenth longer, to spread the stops) until the
            server is disconnected; the next request connects again. Tools stay listed, as ``deferred``. None (default)
            disables the limit.
        max_lifetime: seconds (up to a tenth less) after which a new connection replaces the old: requests in flight are
            finished within the group's ``drain_timeout``, later requests wait for the new connection. None (default)
            disables the limit.
        stop_timeout: seconds for a stop, after which the child process is killed. Default 5.
        replicas: number of processes of this server, sharing name, tools and queue: each request goes to the process
            with the fewest in flight, up to `max_in_flight` each. Not for a server with state between requests. Needs
            `Stdio`, and cannot be combined with ``max_in_flight=1`` or ``on_failure="raise"``. Default 1.
        mailbox_size: further requests waiting in the queue. Default 256.
        overflow: what a request does at a full queue: ``"wait"`` (default) for room, or ``"fail"`` at once.
        health: how a connected server is checked. Default ``HealthPolicy()``.
        breaker: when requests fail at once, unsent. None (default) disables the circuit breaker.
        validate: ``"required"`` (default) checks before each tool call that required arguments are present, and
            compares the first result of each tool on a connection with the output schema (a difference is logged as a
            warning); ``"schema"`` validates arguments and results against the tool's schemas; ``"off"``, nothing.
        trust_annotations: True trusts the server's annotations: a read-only or idempotent tool may be called again
            after a failure. Default False, as the specification recommends.
        static_tools: tools (``mcp.types.Tool``, or mappings as in the protocol) to show while a connected, ``degraded``
            server does not list its own. Default: none, so the connect fails.
        on_tool_change: for a tool added or changed since the first connect, ``"allow"`` (default) shows it, ``"warn"``
            also logs a warning, ``"block"`` hides it and refuses calls until approved (`ServerRef.approve_tools`).
        limits: how much the server may list, and how many unrequested messages it may send. Default ``Limits()``.
        refresh_interval: seconds between two listings of the tools, for a server that never announces changes. None
            (default) relies on notifications.
        keep_resources: True also lists `ServerRef.resources`, `ServerRef.resource_templates` and `ServerRef.prompts`,
            after each connect and each announced change. A failed listing is logged and repeated; the server keeps
            serving. Default False.
        isolation: for ``mcp-actors serve``, ignored by a group: ``"shared"`` (default) is one process for all clients;
            ``"per-session"`` one for each client, whose roots it sees, and to which it may send requests;
            ``"per-identity"`` one for each token over HTTP, and as ``"shared"`` elsewhere.
        extensions: ``mcp.client.ClientExtension`` objects. Announced to the server, they receive its answers and
            messages. One object serves all connections.
        client_info: the client's name and version, for the server. None (default) takes the group's, by default this
            library's.
        source: the path of the configuration file, for people, set by `load_config`. Ignored in comparisons. Default
            None.

    Raises:
        ConfigError: a value is not valid; the message names the server, the field, the value and the remedy.
    """

    # Do not reorder: a default or validator may use only the fields above. The name comes first, because the
    # messages of all other validators show it.
    name: str = field(validator=_check_name)
    transport: Transport = field(validator=_check_transport)
    required: bool = field(default=False, validator=check.flag, kw_only=True)
    tool_filter: ToolFilter = field(default=ToolFilter(), validator=_check_tools, kw_only=True)
    request_timeout: float | None = field(default=60.0, validator=_check_optional_seconds, kw_only=True)
    connect_timeout: float | None = field(default=30.0, validator=_check_optional_seconds, kw_only=True)
    connect: Literal["eager", "lazy"] = field(
        default="eager", validator=[check.one_of("eager", "lazy"), _check_lazy], kw_only=True
    )
    when_down: Literal["wait", "fail"] = field(default="wait", validator=check.one_of("wait", "fail"), kw_only=True)
    max_in_flight: int = field(default=64, validator=check.at_least_one, kw_only=True)
    restarts: RestartPolicy = field(default=Factory(_restarts, takes_self=True), validator=_check_restart, kw_only=True)
    retry: RetryPolicy = field(default=RetryPolicy(), validator=_check_retry, kw_only=True)
    callbacks: Callbacks | None = field(default=None, validator=check.kind(Callbacks, type(None)), kw_only=True)
    middleware: tuple[Middleware, ...] = field(
        default=(), converter=to_middleware, validator=check_middleware, repr=check.shown_functions, kw_only=True
    )
    protocol: Literal["auto", "legacy", "2026-07-28"] = field(default="auto", validator=_check_protocol, kw_only=True)
    enabled: bool = field(default=True, validator=check.flag, kw_only=True)
    title: str | None = field(default=None, validator=_check_title, kw_only=True)
    on_failure: Literal["park", "raise"] = field(default="park", validator=check.one_of("park", "raise"), kw_only=True)
    startup_timeout: float | None = field(
        default=Factory(_startup_timeout, takes_self=True), validator=_check_optional_seconds, kw_only=True
    )
    progress_timeout: float | None = field(default=None, validator=_check_optional_seconds, kw_only=True)
    idle_timeout: float | None = field(default=None, validator=_check_optional_seconds, kw_only=True)
    max_lifetime: float | None = field(default=None, validator=_check_optional_seconds, kw_only=True)
    stop_timeout: float = field(default=5.0, validator=_check_seconds, kw_only=True)
    replicas: int = field(default=1, validator=_check_replicas, kw_only=True)
    mailbox_size: int = field(default=256, validator=check.at_least_one, kw_only=True)
    overflow: Literal["wait", "fail"] = field(default="wait", validator=check.one_of("wait", "fail"), kw_only=True)
    health: HealthPolicy = field(default=HealthPolicy(), validator=_check_health, kw_only=True)
    breaker: BreakerPolicy | None = field(default=None, validator=check.kind(BreakerPolicy, type(None)), kw_only=True)
    validate: Literal["required", "schema", "off"] = field(
        default="required", validator=check.one_of("required", "schema", "off"), kw_only=True
    )
    trust_annotations: bool = field(default=False, validator=check.flag, kw_only=True)
    static_tools: tuple[Tool, ...] = field(
        default=(), converter=to_static_tools, validator=check_static_tools, hash=False, kw_only=True
    )
    on_tool_change: Literal["allow", "warn", "block"] = field(
        default="allow", validator=check.one_of("allow", "warn", "block"), kw_only=True
    )
    limits: Limits = field(default=Limits(), validator=check.kind(Limits), kw_only=True)
    refresh_interval: float | None = field(default=None, validator=_check_optional_seconds, kw_only=True)
    keep_resources: bool = field(default=False, validator=check.flag, kw_only=True)
    isolation: Literal["shared", "per-session", "per-identity"] = field(
        default="shared", validator=check.one_of("shared", "per-session", "per-identity"), kw_only=True
    )
    extensions: tuple[ClientExtension, ...] = field(
        default=(), converter=to_extensions, validator=check_extensions, repr=check.shown_functions, kw_only=True
    )
    client_info: Implementation | None = field(default=None, validator=_check_client_info, hash=False, kw_only=True)
    source: str | None = field(default=None, validator=_check_source, eq=False, kw_only=True)


def check_unique_names(configs: Iterable[ServerConfig]) -> None:
    """Refuse two servers with the same name, disabled or not.

    Raises:
        ConfigError: a name is used twice; the message has both positions, counted from 1, and the files.
    """
    seen: dict[str, str] = {}
    for position, config in enumerate(configs, start=1):
        place = f"{position}" if config.source is None else f"{position} (from {config.source})"
        first = seen.setdefault(config.name, place)
        if first is not place:
            problem = f"configurations {first} and {place} have this name; rename one of them"
            message = f"server {config.name!r}: {problem}"
            raise ConfigError(message, source="ServerConfig", path=f"servers.{config.name}")


# --- A loaded configuration -------------------------------------------------------------------------------------------


def _frozen(failed: Mapping[str, ConfigError]) -> Mapping[str, ConfigError]:
    return Frozen(failed)


@frozen
class LoadedConfig:
    """A loaded configuration: valid servers, and an error for each invalid entry.

    Attributes:
        servers: the servers in the order of the file, including disabled ones.
        errors: a `ConfigError` for each invalid entry, in the order of the file; or a single one for the whole file,
            which then has no servers.
        warnings: messages about keys without effect, and about risks.
        source: the absolute path of the file, or ``"a mapping"``.
        failed: the same errors by server name, or by `source` for the whole file.
        required: the names in `failed` whose entries require the server for the start of a group.
    """

    servers: tuple[ServerConfig, ...]
    errors: tuple[ConfigError, ...] = ()
    warnings: tuple[str, ...] = ()
    source: str = field(default="a mapping", kw_only=True)
    failed: Mapping[str, ConfigError] = field(default={}, converter=_frozen, kw_only=True, repr=False)
    required: frozenset[str] = field(default=frozenset(), kw_only=True, repr=False)


# --- Sources ----------------------------------------------------------------------------------------------------------


class Rank(IntEnum):
    """The precedence of a source. For servers of the same name, the lowest rank wins, then the first source."""

    CODE = 0
    TABLE = 1
    DIRECTORY = 2
    FILE = 3


@runtime_checkable
class Source(Protocol):
    """A place where servers are written down, which `open_servers` reads and, with ``watch=True``, follows.

    `look` and `read` block. A group calls them in a thread, one call at a time for each source, and abandons a call
    still hanging when the group is left. Both must have timeouts, and limits for the returned size.

    Attributes:
        name: names the source in errors, logs and ``ServerConfig.source``, without credentials; unique in the group.
        rank: the precedence over sources with a server of the same name.
        interval: seconds between two looks.
        settles: whether to await two equal looks in a row after a change, because files are written in pieces.
    """

    @property
    def name(self) -> str: ...  # see Attributes
    @property
    def rank(self) -> Rank: ...  # see Attributes
    @property
    def interval(self) -> float: ...  # see Attributes
    @property
    def settles(self) -> bool: ...  # see Attributes

    def look(self) -> Hashable:
        """Return a value that differs from an earlier one if `read` may now return something else.

        Raises:
            ConfigError: the source cannot be reached.
        """

    def read(self) -> tuple[LoadedConfig, ...]:
        """Return the servers of the source: one part, or one for each file of a directory.

        Raises:
            ConfigError: the source cannot be reached.
        """
