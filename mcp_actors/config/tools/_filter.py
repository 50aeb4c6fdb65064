"""Which tools of a server are shown: names and patterns, which are the same for all, and a question per agent and run.

The two are kept apart. What names and patterns hide is in no catalogue, for nobody. The predicate is asked whenever
tools are listed for somebody (`permitted`), because its answer depends on who that is.
"""

from __future__ import annotations

import fnmatch
import inspect
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import attrs

from ..._errors import ConfigError
from .. import _validators as check

__all__ = ["ToolContext", "ToolFilter", "ToolPredicate", "permitted"]

logger = logging.getLogger("mcp_actors.config")

_NAMED: Final = 8  # tools that one log line names
GLOB: Final = re.compile(r"[*?\[]")
"""What makes a name a pattern."""


@attrs.frozen
class ToolContext:
    """Who asks for tools: what the predicate of a `ToolFilter` decides by. This package only passes it on.

    Args:
        agent: who the tools are for.
        run: whatever belongs to this run of the agent: a user, a session, a framework's own context. Default None.
    """

    agent: Any
    run: Any = None


ToolPredicate: TypeAlias = Callable[[Any, ToolContext], bool]
"""``predicate(tool, context)``: whether this `CatalogTool` is shown to who is in the context."""


def _names(value: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return names as a tuple, without repetitions; leave what is no collection of names to `_check_names`."""
    if value is None or isinstance(value, (str, bytes)):
        return value  # type: ignore[return-value]  # a str would be a collection of letters; it is refused
    try:
        return tuple(dict.fromkeys(value))
    except TypeError:
        return value  # type: ignore[return-value]  # whatever it is, it is refused


def _check_collection(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not isinstance(value, tuple):
        remedy = f"give a collection of names, like {attribute.name}=('search', 'read')"
        raise check.refused_value(instance, attribute.name, value, remedy)
    for each in value:
        if not isinstance(each, str) or not each:
            raise check.refused_text(instance, attribute.name, f"(…, {check.shown(each)}, …)", "give names of tools")


def _check_names(instance: ToolFilter, attribute: attrs.Attribute[Any], value: Any) -> None:
    _check_collection(instance, attribute, value)
    for each in value:
        if GLOB.search(each):
            # Taken as a name it would match nothing: an `allow` that shows nothing, or a `deny` that hides nothing.
            remedy = "this is a pattern; move it to patterns, with a leading '!' to hide what matches"
            raise check.refused_value(instance, attribute.name, each, remedy)


def _check_patterns(instance: ToolFilter, attribute: attrs.Attribute[Any], value: Any) -> None:
    _check_collection(instance, attribute, value)
    if not value:
        remedy = "it names no tools; leave it out to show all, or set allow=() to show none"
        raise check.refused_text(instance, attribute.name, "()", remedy)
    if "!" in value:
        raise check.refused_value(instance, attribute.name, "!", "add a pattern after the '!', like '!delete_*'")


def _check_predicate(instance: ToolFilter, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not callable(value):
        remedy = "give a function (tool, context) that returns whether the tool is shown"
        raise check.refused_value(instance, attribute.name, value, remedy)
    if inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(type(value).__call__):
        remedy = "give a plain function (tool, context); prepare what must be awaited, and pass it as the context's run"
        raise check.refused_text(instance, attribute.name, "<async function>", remedy)


def _as_set(names: tuple[str, ...] | None) -> frozenset[str] | None:
    return None if names is None else frozenset(names)


def _matcher(patterns: Iterable[str]) -> re.Pattern[str] | None:
    """Return one expression for all these globs, or None for none."""
    return re.compile("|".join(map(fnmatch.translate, patterns))) if (patterns := tuple(patterns)) else None


def _hides(pattern: str, name: str) -> bool:
    return pattern.startswith("!") and fnmatch.fnmatchcase(name, pattern[1:])


@attrs.frozen(kw_only=True)
class ToolFilter:
    """Which tools of a server are shown. Without arguments: all.

    Names are those by which the server calls its tools; upper and lower case differ. A tool is shown if

    - it is in `allow` or matches a pattern, where any of these is given: what is not named then is hidden, so that a
      tool that the server adds one day is hidden too;
    - and it is neither in `deny` nor matches a pattern that begins with ``!``;
    - and the `predicate` agrees.

    The first two are the same for all: what they hide is not in the group's catalogue, and cannot be called through
    the group. The predicate is asked when tools are listed for somebody, with who that is: it decides what is offered
    to an agent.

    Args:
        allow: the names to show. An empty collection shows none (of what no pattern shows). Default None: all.
        deny: the names to hide. Default: none.
        patterns: globs as in `fnmatch` (``"read_*"``); one that begins with ``!`` hides what matches. Default None.
        predicate: ``predicate(tool, context)``, a plain function that gets a `CatalogTool`, which it cannot change,
            and a `ToolContext`. If it raises the tool is hidden, and that is logged. Default None.

    Raises:
        ConfigError: a value cannot be used, or two contradict each other: a name is both shown and hidden.
    """

    # They are sets to whoever compares filters, and tuples to whoever reads them.

    allow: tuple[str, ...] | None = attrs.field(
        default=None, converter=_names, validator=attrs.validators.optional(_check_names), eq=_as_set
    )
    deny: tuple[str, ...] = attrs.field(default=(), converter=_names, validator=_check_names, eq=_as_set)
    patterns: tuple[str, ...] | None = attrs.field(
        default=None, converter=_names, validator=attrs.validators.optional(_check_patterns), eq=_as_set
    )
    predicate: ToolPredicate | None = attrs.field(default=None, validator=attrs.validators.optional(_check_predicate))

    def __attrs_post_init__(self) -> None:
        for name in self.allow or ():
            if name in self.deny:
                raise _contradiction(f"{name!r} is both in allow and in deny", "remove it from one of them")
            if self._hidden is not None and self._hidden.fullmatch(name):
                pattern = next(each for each in self.patterns or () if _hides(each, name))
                raise _contradiction(
                    f"{name!r} is in allow, and the pattern {pattern!r} hides it", "remove one of them"
                )
        for pattern in self.patterns or ():
            if f"!{pattern}" in (self.patterns or ()):
                raise _contradiction(f"patterns has both {pattern!r} and '!{pattern}'", "remove one of them")

    @cached_property
    def _shown(self) -> re.Pattern[str] | None:
        return _matcher(each for each in self.patterns or () if not each.startswith("!"))

    @cached_property
    def _hidden(self) -> re.Pattern[str] | None:
        return _matcher(each[1:] for each in self.patterns or () if each.startswith("!"))

    def shows(self, name: str) -> bool:
        """Whether the tool of this name, as the server calls it, is shown to anybody: all but the predicate."""
        if name in self.deny or (self._hidden is not None and self._hidden.fullmatch(name)):
            return False
        if self.allow is None and self._shown is None:
            return True
        return name in (self.allow or ()) or (self._shown is not None and self._shown.fullmatch(name) is not None)


def _contradiction(problem: str, remedy: str) -> ConfigError:
    return ConfigError(f"ToolFilter: {problem}; {remedy}", source="ToolFilter")


# --- who may see what -----------------------------------------------------------------------------------------------


class _Named(Protocol):
    @property
    def server(self) -> str: ...

    @property
    def name(self) -> str: ...


_T = TypeVar("_T", bound=_Named)


def permitted(
    tools: Iterable[_T], filters: Mapping[str, ToolFilter], context: ToolContext | None = None
) -> tuple[_T, ...]:
    """Return those of some tools that the predicates of their servers show, in the same order.

    Names and patterns are not looked at again; whoever made the catalogue has done that.

    Args:
        tools: tools of a catalogue. They are given to the predicates as they are: nobody can change them.
        filters: the filters of the servers, by name. A server without one shows all.
        context: who the tools are for.

    Raises:
        ConfigError: a predicate would have to be asked, and there is no context.
    """
    failures: dict[str, list[tuple[str, Exception]]] = {}
    shown = []
    for tool in tools:
        server_filter = filters.get(tool.server)
        if server_filter is None or server_filter.predicate is None:
            shown.append(tool)
            continue
        if context is None:
            raise ConfigError(
                f"server {tool.server!r}: the predicate of its ToolFilter needs to know for whom the tools are listed; "
                "pass context=ToolContext(agent=…, run=…)",
                source="ToolFilter",
                path=f"servers.{tool.server}.tools.predicate",
            )
        try:
            if _agrees(server_filter.predicate, tool, context):
                shown.append(tool)
        except Exception as exc:  # it is foreign code
            failures.setdefault(tool.server, []).append((tool.name, exc))
    for server, failed in failures.items():
        _log_failures(server, failed)
    return tuple(shown)


def _agrees(predicate: Callable[[Any, ToolContext], object], tool: object, context: ToolContext) -> bool:
    answer = predicate(tool, context)
    if inspect.isawaitable(answer):
        # It would count as true.
        if inspect.iscoroutine(answer):
            answer.close()
        raise TypeError("the predicate of a ToolFilter must return True or False, not an awaitable")
    return bool(answer)


def _log_failures(server: str, failed: list[tuple[str, Exception]]) -> None:
    names = ", ".join(f"{name!r:.80}" for name, _ in failed[:_NAMED])
    more = f" and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
    logger.warning(
        "server %r: the predicate of its ToolFilter raised, so these tools are hidden: %s%s",
        server,
        names,
        more,
        exc_info=failed[0][1],
    )
