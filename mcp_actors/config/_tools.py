"""Filter the tools of a server; validate its ``static_tools``.

Names and patterns hide tools from everyone. A predicate hides tools from one agent, whenever tools are listed for that
agent. Predicates are the user's code, and may raise.

Owns: nothing.
Writes: the log.
Calls: _validators.
"""

from __future__ import annotations

import fnmatch
import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import attrs
from mcp.types import Tool
from pydantic_core import ValidationError

from .._errors import ConfigError
from .._foreign import Log, answer_of
from .._misuse import explained
from .._text import some_of
from . import _validators as check

# --- Filter tools -----------------------------------------------------------------------------------------------------


logger = Log("mcp_actors.config")

_NAMED: Final = 8  # tools that one log line names
GLOB: Final = re.compile(r"[*?\[]")
"""A character that makes a name a pattern."""


@explained
@attrs.frozen
class ToolContext:
    """The agent and the run for which tools are listed, passed unchanged to the predicate of a `ToolFilter`.

    Args:
        agent: the agent.
        run: anything that belongs to this run: a user, a session, a framework's context. Default None.
    """

    agent: Any
    run: Any = None


ToolPredicate: TypeAlias = Callable[[Any, ToolContext], Awaitable[bool] | bool]
"""``predicate(tool, context)``, async or not: return whether this `CatalogTool` is shown in this context."""


def _names(value: Iterable[str]) -> tuple[str, ...]:
    """Return names without duplicates; return anything else unchanged, for `_check_names` to refuse."""
    if isinstance(value, (str, bytes)):
        return value  # type: ignore[return-value]  # refused by the validator; a str would become letters
    try:
        return tuple(dict.fromkeys(value))
    except TypeError:
        return value  # type: ignore[return-value]  # refused by the validator


def _names_or_none(value: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if value is None else _names(value)


def _check_collection(instance: Any, attribute: attrs.Attribute[check.Value], value: check.Value) -> tuple[str, ...]:
    if not isinstance(value, tuple):
        remedy = f"give a collection of names, like {attribute.name}=('search', 'read')"
        raise check.refused_value(instance, attribute.name, value, remedy)
    for each in value:
        if not isinstance(each, str) or not each:
            raise check.refused_text(instance, attribute.name, f"(…, {check.shown(each)}, …)", "give names of tools")
    return value


def _check_names(instance: ToolFilter, attribute: attrs.Attribute[check.Value], value: check.Value) -> None:
    for each in _check_collection(instance, attribute, value):
        if GLOB.search(each):
            # As a name it would match nothing: `allow` would show nothing, and `deny` hide nothing.
            remedy = "this is a pattern; move it to patterns, with a leading '!' to hide what matches"
            raise check.refused_value(instance, attribute.name, each, remedy)


def _check_patterns(instance: ToolFilter, attribute: attrs.Attribute[check.Value], value: check.Value) -> None:
    patterns = _check_collection(instance, attribute, value)
    if not patterns:
        remedy = "it names no tools; leave it out to show all, or set allow=() to show none"
        raise check.refused_text(instance, attribute.name, "()", remedy)
    if "!" in patterns:
        raise check.refused_value(instance, attribute.name, "!", "add a pattern after the '!', like '!delete_*'")


def _check_predicate(instance: ToolFilter, attribute: attrs.Attribute[Any], value: Any) -> None:
    remedy = "give a function (tool, context), async or not, that returns whether the tool is shown"
    check.check_function(instance, attribute.name, value, ("tool", "context"), remedy)
    if swapped := _swapped(value):
        problem = f"<{check.name_of(value)}, which takes {swapped}>"
        remedy = "swap its parameters to (tool, context); the context has agent and run, where run is the framework's"
        raise check.refused_text(instance, attribute.name, problem, remedy)


def _swapped(predicate: Callable[..., Any]) -> str | None:
    """Return the parameters of a predicate that expects the context first, as in other libraries; else None."""
    try:
        first, second, *_ = [*inspect.signature(predicate).parameters, "", ""]
    except (TypeError, ValueError):  # as in `takes`
        return None
    if _is_context(first) > _is_context(second) or _is_tool(second) > _is_tool(first):
        return f"({first}, {second})"
    return None


def _is_context(parameter: str) -> bool:
    return "context" in parameter or "ctx" in parameter


def _is_tool(parameter: str) -> bool:
    return "tool" in parameter and not _is_context(parameter)


def _as_set(names: tuple[str, ...] | None) -> frozenset[str] | None:
    return None if names is None else frozenset(names)


def _matcher(patterns: Iterable[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(map(fnmatch.translate, patterns))) if (patterns := tuple(patterns)) else None


@explained
@check.brief
@attrs.frozen(kw_only=True)
class ToolFilter:
    """A filter for the tools of a server. Without arguments, all tools are shown.

    Names are the server's own names, and case-sensitive. A tool is shown if

    - it is in `allow` or matches a pattern, if either is given (tools that the server adds later are then hidden);
    - and it is neither in `deny` nor matches a pattern beginning with ``!``;
    - and the `predicate` returns True.

    Tools hidden by names and patterns are not in the group's catalogue, and cannot be called through the group. The
    predicate decides which tools are offered to an agent, when they are listed.

    Args:
        allow: the names to show. An empty collection shows only tools matching a pattern. Default None: all.
        deny: the names to hide. Default: none.
        patterns: globs as in `fnmatch` (``"read_*"``); a leading ``!`` hides the matches. Default None.
        predicate: ``predicate(tool, context)``, async or not, that gets an immutable `CatalogTool` and a `ToolContext`.
            Called for one tool after the other, in the task listing them; a plain function must not block. If it
            raises, the tool is hidden and the error logged. Default None.

    Raises:
        ConfigError: a value is not valid, or a name is both shown and hidden.
    """

    # Compared as sets (`eq`), and shown as tuples in the given order.

    allow: tuple[str, ...] | None = attrs.field(
        default=None, converter=_names_or_none, validator=attrs.validators.optional(_check_names), eq=_as_set
    )
    deny: tuple[str, ...] = attrs.field(default=(), converter=_names, validator=_check_names, eq=_as_set)
    patterns: tuple[str, ...] | None = attrs.field(
        default=None, converter=_names_or_none, validator=attrs.validators.optional(_check_patterns), eq=_as_set
    )
    predicate: ToolPredicate | None = attrs.field(
        default=None, validator=attrs.validators.optional(_check_predicate), repr=check.shown_function
    )

    def __attrs_post_init__(self) -> None:
        for name in self.allow or ():
            if name in self.deny:
                raise _contradiction(f"{name!r} is both in allow and in deny", "remove it from one of them")
            if self._hidden is not None and self._hidden.fullmatch(name):
                negative = (each for each in self.patterns or () if each.startswith("!"))
                pattern = next(each for each in negative if fnmatch.fnmatchcase(name, each[1:]))
                problem = f"{name!r} is in allow, and the pattern {pattern!r} hides it"
                raise _contradiction(problem, "remove one of them")
        for pattern in self.patterns or ():
            if f"!{pattern}" in (self.patterns or ()):
                raise _contradiction(f"patterns has both {pattern!r} and '!{pattern}'", "remove one of them")

    @cached_property
    def _shown(self) -> re.Pattern[str] | None:
        return _matcher(each for each in self.patterns or () if not each.startswith("!"))

    @cached_property
    def _hidden(self) -> re.Pattern[str] | None:
        return _matcher(each[1:] for each in self.patterns or () if each.startswith("!"))

    @property
    def shows_all(self) -> bool:
        """Whether names and patterns hide nothing."""
        return self.allow is None and self.patterns is None and not self.deny

    def shows(self, name: str) -> bool:
        """Return whether names and patterns show the tool of this name."""
        if name in self.deny or (self._hidden is not None and self._hidden.fullmatch(name)):
            return False
        if self.allow is None and self._shown is None:
            return True
        return name in (self.allow or ()) or (self._shown is not None and self._shown.fullmatch(name) is not None)


def _contradiction(problem: str, remedy: str) -> ConfigError:
    return ConfigError(f"{problem}; {remedy}", owner="ToolFilter", source="ToolFilter")


# --- the predicate --------------------------------------------------------------------------------------------------


class _HasName(Protocol):
    @property
    def server(self) -> str: ...

    @property
    def name(self) -> str: ...


_T = TypeVar("_T", bound=_HasName)


async def permitted(
    tools: Iterable[_T], filters: Mapping[str, ToolFilter], context: ToolContext | None = None
) -> tuple[_T, ...]:
    """Return the tools that the predicates of their servers show, in the same order.

    Names and patterns are not checked again; they were applied when the catalogue was made.

    **Cancellation**: ends the listing. Without async predicates this is not a checkpoint.

    Args:
        tools: tools of a catalogue.
        filters: the filters by server name. A server without a filter shows all its tools.
        context: the agent and run for which the tools are listed.

    Raises:
        ConfigError: a server has a predicate, and `context` is None.
    """
    failures: dict[str, list[tuple[str, Exception]]] = {}
    shown = []
    for tool in tools:
        server_filter = filters.get(tool.server)
        if server_filter is None or server_filter.predicate is None:
            shown.append(tool)
            continue
        if context is None:
            problem = "the predicate of its ToolFilter needs to know for whom the tools are listed"
            what = f"server {tool.server!r}: {problem}; pass context=ToolContext(agent=…, run=…)"
            raise ConfigError(what, source="ToolFilter", path=f"servers.{tool.server}.tools.predicate")
        try:
            if await answer_of(server_filter.predicate(tool, context)):
                shown.append(tool)
        except Exception as exc:
            # The user's code may raise anything. Failing the listing would take the tools of all servers from the
            # agent, so hide the tool, and log the error once per server. Cancelled is not an Exception, and ends the
            # listing.
            failures.setdefault(tool.server, []).append((tool.name, exc))
    for server, failed in failures.items():
        _log_failures(server, failed)
    return tuple(shown)


def _log_failures(server: str, failed: list[tuple[str, Exception]]) -> None:
    names = some_of([name for name, _ in failed], _NAMED, "{!r:.80}".format)
    first = failed[0][1]
    if isinstance(first, AttributeError) and isinstance(first.obj, ToolContext):  # the arguments were mixed up
        names += "; it is called with (tool, context), and the context has agent and run"
    problem = "server %r: the predicate of its ToolFilter raised, so these tools are hidden: %s"
    logger.warning(problem, server, names, exc_info=first)


# --- Declare tools ----------------------------------------------------------------------------------------------------


_STATIC_REMEDY = "give mcp.types.Tool objects, or mappings with a name and an inputSchema, each name once"


def to_static_tools(value: Iterable[Tool | Mapping[str, Any]]) -> tuple[Tool, ...]:
    """Convert mappings to tools; `check_static_tools` refuses the rest."""
    tools: Any = check.as_tuple(value)
    if not isinstance(tools, tuple):
        return tools  # type: ignore[no-any-return]  # refused by the validator
    return tuple(_to_tool(number, each) for number, each in enumerate(tools, start=1))


def _to_tool(number: int, value: Tool | Mapping[str, Any]) -> Tool:
    if not isinstance(value, Mapping):
        return value
    try:
        return Tool.model_validate(value)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        name = check.shown(value["name"]) if "name" in value else f"number {number}"
        what = f"static_tools: tool {name}: {where}: {first['msg']}; {_STATIC_REMEDY}"
        raise ConfigError(what, source="ServerConfig", path="static_tools") from None


_check_tuple: Final = check.tuple_of(lambda each: isinstance(each, Tool), _STATIC_REMEDY)


def check_static_tools(instance: Any, attribute: attrs.Attribute[tuple[Tool, ...]], value: tuple[Tool, ...]) -> None:
    _check_tuple(instance, attribute, value)
    names: set[str] = set()
    for tool in value:
        if tool.name in names:
            raise check.refused_text(instance, attribute.name, f"{tool.name!r} twice", _STATIC_REMEDY)
        names.add(tool.name)
