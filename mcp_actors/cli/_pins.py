"""Review changed tools: ``pins show``, ``approve`` and ``reject``.

A ``catalog_store`` keeps each server's last listing and the pins of accepted tools. New pins take effect at a program's
next start. A change may consist of hidden characters, so changes are printed with escapes.

Owns: nothing.
Writes: pins in the ``catalog_store``; the command's output.
Calls: catalog, config, servers, _configuration, _output.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
from mcp.types import Tool
from pydantic import ValidationError

from ..catalog import Pins, PinVerdict, judge, pins_of
from ..catalog._pins import CatalogStore, RememberedCatalog, default_directory, definition_lines
from ..config import LoadedConfig, ServerConfig
from ..servers._admission import fingerprint
from ._configuration import load_unasked, server_name_of, split_tool
from ._output import Failure, Misuse, Output, unknown


@attrs.frozen(kw_only=True)
class _PinReview:
    """The last listing of a server, compared with the accepted tools."""

    config: ServerConfig
    remembered: RememberedCatalog
    seen: Pins
    verdict: PinVerdict

    @property
    def changes(self) -> dict[str, str]:
        kinds = {"added": self.verdict.added, "changed": self.verdict.changed, "removed": self.verdict.removed}
        return {name: kind for kind, names in kinds.items() for name in names}

    def diff(self, tool: str) -> list[str]:
        """Return a diff of a tool's definition, unchanged lines included."""
        before, after = _definition(self.remembered.former, tool), _definition(self.remembered.tools or (), tool)
        if not before:
            return [f"+ {line}" for line in after]
        whole = len(before) + len(after)
        return [f"{line[0]} {line[1:]}" for line in [*difflib.unified_diff(before, after, n=whole)][3:]]


def _definition(tools: Iterable[Mapping[str, Any]], name: str) -> list[str]:
    return next((definition_lines(each) for each in tools if each["name"] == name), [])


async def show_pins(names: Sequence[str], config: str | None, directory: str | None, output: Output) -> int:
    store, loaded = _store(directory), load_unasked(config, names)
    reviews = [review for each in loaded.servers if (review := _reviewed(store, each, output)) is not None]
    if not reviews and not loaded.errors:
        raise Failure(_nothing(store))
    for review in reviews:
        waiting, listed = len(review.verdict.hidden), len(review.seen.tools)
        of = f"{waiting} of {listed} not accepted" if waiting else f"{listed} listed, all accepted"
        output.line((review.config.name, "bold"), f"  tools: {of}")
        if review.verdict.identity_changed:
            output.line("  its command or URL has changed, so none of its tools is accepted")
        for tool, kind in review.changes.items():
            _print(review, tool, kind, output)
    output.json(
        [
            {"server": review.config.name, "tool": tool, "change": kind, "diff": review.diff(tool)}
            for review in reviews
            for tool, kind in review.changes.items()
        ]
    )
    return output.errors(loaded.errors) or int(any(review.verdict.hidden for review in reviews))


def _print(review: _PinReview, tool: str, what: str, output: Output) -> None:
    output.line("  ", (f"{review.config.name}/{tool}", "bold"), f"  {what}")
    for line in review.diff(tool) if tool in review.changes and tool in review.seen.tools else ():
        output.line((f"    {line}", {"+": "green", "-": "red"}.get(line[0], "")))


async def decide(
    words: Sequence[str], config: str | None, directory: str | None, output: Output, *, approve: bool
) -> int:
    """Check all words, then approve or reject tools."""
    store, loaded = _store(directory), load_unasked(config)
    decisions = [_decision(store, server, tools, output, approve=approve) for server, tools in _named(words, loaded)]
    for review, tools in decisions:
        accepted = review.remembered.pins or review.seen
        if approve:
            pins = accepted.approve(review.seen, tools)
        else:
            kept = {name: each for name, each in accepted.tools.items() if name not in tools}
            pins = Pins(tools=kept, identity=accepted.identity)
        with _errors_of(store):
            saved = store.save(_key(review.config), attrs.evolve(review.remembered, pins=pins))
        if not saved:
            raise Failure(f"server {review.config.name!r}: its file in {store.directory} is too large to be changed")
        for tool in tools:
            _print(review, tool, "approved" if approve else "rejected", output)
        if not tools:
            output.note(f"{review.config.name}: all its tools are accepted already")
        if (policy := review.config.on_tool_change) != "block":
            output.warning(f"server {review.config.name!r}: on_tool_change is {policy!r}, which hides no tool")
    output.json([{"server": review.config.name, "tools": tools} for review, tools in decisions])
    return 0


def _decision(
    store: CatalogStore, server: ServerConfig, tools: tuple[str, ...], output: Output, *, approve: bool
) -> tuple[_PinReview, tuple[str, ...]]:
    """Return the review of a server, and the tools to approve or reject."""
    review = _reviewed(store, server, output)
    if review is None:
        raise Failure(f"server {server.name!r}: {_nothing(store)}")
    known = [*review.changes] if approve else [*dict.fromkeys((*review.changes, *review.seen.tools))]
    for tool in tools:
        if tool not in known:
            problem = f"server {server.name!r}: tool {tool!r} {'has not changed' if approve else 'is not known'}"
            raise unknown(problem, tool, known, "changed tools" if approve else "tools")
    return review, tools or tuple(review.changes)


def _named(words: Sequence[str], loaded: LoadedConfig) -> list[tuple[ServerConfig, tuple[str, ...]]]:
    """Return the servers and tools in words like ``SERVER`` and ``SERVER/TOOL``; no tools mean all."""
    known = {server.name: server for server in loaded.servers}
    named: dict[str, list[str]] = {}
    for word in words:
        if (split := split_tool(word, known)) is None:
            error = unknown(f"{loaded.source}: there is no server {word!r}", word.partition("/")[0], known, "servers")
            raise Misuse(f"{error}; a tool of {[*named][-1]!r} is written {[*named][-1]}/{word}") if named else error
        server, tool = split
        named.setdefault(server_name_of(server), []).append(tool or "")
    return [(known[name], () if "" in tools else tuple(dict.fromkeys(tools))) for name, tools in named.items()]


def _reviewed(store: CatalogStore, config: ServerConfig, output: Output) -> _PinReview | None:
    """Compare a server's last listing with the accepted tools; return None without a listing."""
    with _errors_of(store):
        remembered = store.load(_key(config))
    if remembered is None:
        if store.size(_key(config)):
            output.warning(f"server {config.name!r}: its file {store.path(_key(config))} is damaged, so it is ignored")
        else:
            output.note(f"{config.name}: nothing is remembered")
        return None
    try:
        tools = map(Tool.model_validate, remembered.tools or ())
        seen = pins_of(tool for tool in tools if config.tool_filter.shows(tool.name))
    except ValidationError:
        raise Failure(f"{store.path(_key(config))}: the file is damaged; remove it") from None
    seen = attrs.evolve(seen, identity=remembered.identity)
    return _PinReview(config=config, remembered=remembered, seen=seen, verdict=judge(remembered.pins, seen, "block"))


def _key(config: ServerConfig) -> str:
    key = fingerprint(config)
    assert key is not None, "a file has no servers in this process"
    return key


def _store(directory: str | None) -> CatalogStore:
    return CatalogStore(default_directory() if directory is None else directory)


def _nothing(store: CatalogStore) -> str:
    return (
        f"no tools are remembered in {store.directory}; a program remembers them if it opens this file with "
        "a catalog_store; run it once, or name its directory with --store"
    )


@contextmanager
def _errors_of(store: CatalogStore) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Failure(f"{store.directory}: {error.strerror}; check the permissions of its files") from None
