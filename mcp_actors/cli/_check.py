"""Report the states of all servers: ``check`` and ``watch``.

``check`` connects once and prints each result as soon as known. After Ctrl-C it also names servers without a result.
Until a signal or an error, ``watch`` shows a live table on a terminal, or prints each change as a line elsewhere.

Owns: results; unprinted changes; the group of servers; the live table; the printing task.
Writes: signal handlers of the process; the command's output.
Calls: catalog, config, config.formats, kernel, servers, _configuration, _connect, _output, _sign_in.
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn, TypeAlias

import trio
from attrs import asdict, evolve, field, frozen
from rich.cells import cell_len, chop_cells
from rich.live import Live
from rich.text import Text

from .._errors import ConfigError
from .._text import plain_text, problem_of
from ..catalog._schemas import listed
from ..config import LoadedConfig
from ..config.formats import decode, read_bytes
from ..config.formats._file import parse
from ..config.formats._programs import OF_CLAUDE, find_sections
from ..kernel import Event
from ..servers import ConfigRejected, ServerGroup, ServerRef, ServerStatus, StateChanged, open_servers
from ._configuration import followed, load
from ._connect import UNLIMITED, connecting, describe, hidden_of, masker_of, open_once
from ._output import Output, Signalled, at_the_command_line, until_signalled
from ._sign_in import NEEDS_AUTH, describe_sign_in


@frozen(kw_only=True)
class Finding:
    """The result for one server."""

    name: str
    state: str
    reached: str = ""  # a command or URL
    server: str | None = None
    version: str | None = None
    protocol_version: str | None = None
    seconds: float | None = None  # until connected or failed
    tools: int | None = None
    hidden: int | None = None
    error: str | None = None
    signed_in: str | None = None


@frozen
class Stopwatch:
    """Measures the first connect of each server."""

    began: dict[str, float] = field(factory=dict)
    took: dict[str, float] = field(factory=dict)

    def __call__(self, event: Event) -> None:
        if isinstance(event, StateChanged):
            if event.new == "connecting":
                self.began.setdefault(event.server, event.time)
            elif event.server in self.began:
                self.took.setdefault(event.server, event.time - self.began[event.server])


async def check_servers(names: Sequence[str], config: str | None, output: Output) -> int:
    if config is None:
        _note_servers_of_claude(output)
    loaded = load(config, names, output)
    for warning in loaded.warnings:
        output.warning(warning)
    findings = await _check(loaded, output)
    output.json([asdict(finding) for finding in findings])
    bad = {finding.name: finding.state for finding in findings if finding.state not in ("ready", "disabled")}
    if bad:
        output.error(f"{len(bad)} of {len(findings)} servers cannot be used: {listed([*bad])}")
    elif not findings:
        output.warning(f"{loaded.source}: the file configures no servers; add one")
    return NEEDS_AUTH if bad and set(bad.values()) == {"needs_auth"} else 1 if bad else 0


def _note_servers_of_claude(output: Output) -> None:
    """Print a note if Claude Code has servers for this folder in its own file, where commands do not look."""
    file = os.path.expanduser(f"~/{OF_CLAUDE}")
    with suppress(ConfigError):
        sections = find_sections(file, parse(file, decode(file, read_bytes(file)[0])))
        names = [name for place, section in sections if place.startswith("projects") for name in section]
        if names:
            output.note(f"{file} has servers of Claude Code for this folder: {listed(names)}; use: --config {file}")


async def _check(loaded: LoadedConfig, output: Output) -> list[Finding]:
    """Connect to the servers, and print each result as soon as known. Entries that could not be loaded come first."""
    stopwatch, configs = Stopwatch(), {config.name: config for config in loaded.servers}
    width = max(map(len, (*loaded.failed, *configs)), default=0)
    findings: dict[str, Finding] = {}

    def add(finding: Finding) -> None:
        findings[finding.name] = finding
        _print(finding, width, output)

    async def settled(group: ServerGroup, ref: ServerRef) -> None:
        signed_in = await describe_sign_in(configs[ref.name])
        add(_finding(group, ref, stopwatch, signed_in, output))

    for name, error in loaded.failed.items():
        add(Finding(name=name, state="invalid", error=at_the_command_line(str(error))))
    try:
        async with open_once(loaded, output, settled=settled, observers=[stopwatch]):
            pass
    finally:  # also after a Ctrl-C or another signal, usually because one server takes too long
        for config in loaded.servers:
            if config.name not in findings:
                state, problem = ("connecting", "not finished") if config.enabled else ("disabled", None)
                add(Finding(name=config.name, state=state, reached=describe(config.transport), error=problem))
    return [findings[name] for name in (*loaded.failed, *configs)]


def _finding(
    group: ServerGroup, ref: ServerRef, stopwatch: Stopwatch, signed_in: str | None, output: Output
) -> Finding:
    reached, seconds = describe(ref.config.transport), stopwatch.took.get(ref.name)
    found = Finding(name=ref.name, state=ref.state, reached=reached, seconds=seconds)
    if (error := group.errors.get(ref.name)) is not None:
        return evolve(found, error=at_the_command_line(str(error)))
    info, mask = ref.info, masker_of(ref)
    return evolve(
        found,
        server=mask.data(info.name),
        version=mask.data(info.version),
        protocol_version=info.protocol_version,
        tools=ref.statistics().tools,
        hidden=hidden_of(ref, output),
        signed_in=signed_in,
    )


def _print(finding: Finding, width: int, output: Output) -> None:
    style = {"ready": "green", "disabled": "dim"}.get(finding.state, "red")
    words: list[Any] = [(finding.name.ljust(width), "bold"), "  ", (finding.state.ljust(8), style)]
    if finding.tools is not None:
        identity = " ".join(filter(None, (finding.server, finding.version))) or "a server without a name"
        tools = f"{finding.tools} tool{'' if finding.tools == 1 else 's'}"
        if finding.hidden:
            tools += f" ({finding.hidden} hidden by its filter)"
        words.append(f"  {identity}, {finding.protocol_version}, {tools}, {finding.seconds:.2f} s")
    elif finding.error is not None:
        words.append(f"  {finding.error}")
    if finding.signed_in is not None:
        words.append(f"  {finding.signed_in}")
    if finding.reached:
        words.append((f"  [{finding.reached}]", "dim"))
    output.line(*words, wrap=True)


# --- ``mcp-actors watch``: show the states of the servers as they change ----------------------------------------------


_Change: TypeAlias = StateChanged | ConfigRejected

_STYLES = {
    "ready": "green",
    "degraded": "yellow",
    "stopped": "dim",
    **dict.fromkeys(("unhealthy", "failed", "needs_auth", "backoff"), "red"),
}


async def watch_servers(names: Sequence[str], config: str | None, output: Output, *, every: float) -> NoReturn:
    loaded, source = followed(config, names, output)
    follows = source is not loaded
    for error in loaded.errors:
        output.error(error)
    if output.results.is_terminal and not output.as_json:
        with Live(connecting(loaded.servers), console=output.results, auto_refresh=False) as live:
            async with until_signalled(), open_servers(source, watch=follows, max_servers=UNLIMITED) as group:
                await _show(group, live, every)
    # Use an observer, which sees the first connects too. But observers run in steps of the group, where a slow reader
    # of the output must not block, and exceptions are only logged. So a channel without limit passes the events to a
    # task, where a reader that has ended (BrokenPipeError) ends the command.
    send, changes = trio.open_memory_channel[_Change](math.inf)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_print_changes, changes, output)

            def forward(event: Event) -> None:
                if isinstance(event, StateChanged | ConfigRejected):
                    send.send_nowait(event)

            async with (
                until_signalled(),
                open_servers(source, watch=follows, max_servers=UNLIMITED, observers=[forward]),
            ):
                await trio.sleep_forever()
    finally:
        with suppress(trio.WouldBlock):
            while True:  # print the rest: changes while the group was closed
                _print_change(changes.receive_nowait(), output)
    raise AssertionError("unreachable")


async def _print_changes(changes: trio.MemoryReceiveChannel[_Change], output: Output) -> None:
    async for event in changes:
        _print_change(event, output)


def _print_change(event: _Change, output: Output) -> None:
    if isinstance(event, ConfigRejected):
        output.error(event.error)
        return
    change = {"server": event.server, "old": event.old, "new": event.new, "reason": event.reason}
    output.line((event.server, "bold"), f"  {event.old} -> {event.new}  {event.reason}")
    output.json({**change, "incarnation": event.incarnation})
    output.results.file.flush()


async def _show(group: ServerGroup, live: Live, every: float) -> NoReturn:
    """Draw the screen at each event, and at least every `every` seconds."""
    async with group.watch_events() as events:
        while True:
            if not live.console.is_terminal:
                # The terminal was closed. Under nohup SIGHUP is ignored, and this loop would go on without a reader.
                raise Signalled(signal.SIGHUP)
            columns, rows = live.console.size
            live.update(draw(Screen.of(group), trio.current_time(), columns, rows), refresh=True)
            with trio.move_on_after(every):
                await anext(events)


@frozen
class Screen:
    """The content of the live table at one moment.

    Attributes:
        words: the name of an unwell server → the last line of stderr.
        problems: errors of entries and files that cannot be used.
    """

    statuses: tuple[ServerStatus, ...]
    words: Mapping[str, str] = field(factory=dict)
    problems: tuple[str, ...] = ()

    @classmethod
    def of(cls, group: ServerGroup) -> Screen:
        statuses = tuple(group.status().values())
        # Masking the stderr of a server takes a while, so it is read only where it is shown.
        ended = {each.name: group[each.name].stderr_tail.rstrip().splitlines() for each in statuses if _is_unwell(each)}
        words = {name: lines[-1] for name, lines in ended.items() if lines}
        return cls(statuses, words, tuple(str(error) for name, error in group.errors.items() if name not in group))


def draw(screen: Screen, now: float, columns: int, rows: int) -> Text:
    """Return a screen as text of at most `rows` lines of `columns` cells. `now` is a time of Trio's clock.

    Below an unwell server are the last error, or the reason of the state, and the last line of stderr.
    """
    cells = [_HEADINGS, *(_row(status, now) for status in screen.statuses)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    widths[0] = min(widths[0], max(8, columns - sum(widths[1:]) - 2 * len(widths[1:])))
    heading, *lines = (_line(each, widths) for each in cells)
    heading.stylize("bold")
    shown = [heading]
    for status, line in zip(screen.statuses, lines, strict=True):
        begin = widths[0] + 2
        line.stylize(_STYLES.get(status.state, ""), begin, begin + widths[1])
        shown.append(line)
        if _is_unwell(status):
            shown += _details(status, screen.words.get(status.name, ""))
    for line in shown:
        line.truncate(columns, overflow="ellipsis")
    for problem in screen.problems:  # in full, because the remedy is at its end
        shown += [Text(piece, "red") for piece in chop_cells(plain_text(at_the_command_line(problem)), columns)]
    if len(shown) > rows:
        hidden = len(shown) - rows + 1
        shown[rows - 1 :] = [Text(f"… {hidden} more lines"[:columns], "dim")]
    return Text("\n").join(shown)


def _details(status: ServerStatus, words: str) -> list[Text]:
    details = []
    if status.last_error is not None:
        details.append(Text(f"  error: {at_the_command_line(problem_of(status.last_error))}", "red"))
    elif status.state != "connecting":  # its reason repeats the last line of stderr
        details.append(Text(f"  reason: {plain_text(status.reason)}", "red"))
    if words:
        details.append(Text(f"  stderr: {plain_text(words)}", "dim"))
    return details


def _is_unwell(status: ServerStatus) -> bool:
    if status.state == "ready":
        return status.replicas.serving < status.replicas.total
    return status.state not in ("pending", "stopping", "stopped")


def _line(cells: Sequence[str], widths: Sequence[int]) -> Text:
    line = Text(no_wrap=True)
    for cell, width in zip(cells, widths, strict=True):
        text = Text(cell)
        text.truncate(width, overflow="ellipsis", pad=True)
        line.append(text).append("  ")
    line.rstrip()
    return line


_HEADINGS: Final = ("server", "state", "run", "pid", "for", "in flight", "queued", "restarts")


def _row(status: ServerStatus, now: float) -> tuple[str, ...]:
    replicas = status.replicas
    return (
        status.name,
        status.state if replicas.total == 1 else f"{status.state} {replicas.serving}/{replicas.total}",
        str(status.incarnation),
        " ".join(str(each.pid) for each in replicas.each if each.pid is not None),
        f"{now - status.since:.0f} s",
        str(status.in_flight),
        str(status.queued),
        str(status.restarts),
    )
