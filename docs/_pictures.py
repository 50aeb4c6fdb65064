"""Draw the pictures of the documentation: ``python docs/_pictures.py`` writes all of them to ``docs/pictures``.

Each picture is one function, which draws its wide and its narrow form. Three are drawn from what they show: the states
from the table in the code, the costs from the tables on the page about speed, and the screens and the calls of a dying
server from the recordings of ``_recording.py``. ``tests/test_pictures.py`` draws all of them again, and compares.

Pages show the wide form, `fill` adds the narrow one when the site is built. In the README, a ``<picture>`` has both.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias

sys.path.insert(0, str(Path(__file__).parent))
import _recording
from _drawing import Box, Drawing, Line, height_of

from mcp_actors.servers.record._states import CONNECTED, PARKED, SERVER_STATES, TRANSITIONS

DOCS: Final = Path(__file__).parent
PICTURES: Final = DOCS / "pictures"
NARROW: Final = "(max-width: 700px)"
"""The windows that get the narrow form."""


def head(text: str) -> Line:
    """Return a bold line."""
    return Line(text, "head")


def small(text: str) -> Line:
    """Return a small line."""
    return Line(text, "small")


def code(text: str) -> Line:
    """Return a line of code."""
    return Line(text, "code")


# --- The house --------------------------------------------------------------------------------------------------------


def house(narrow: bool) -> Drawing:
    """Draw tasks, mailboxes, owner tasks and servers."""
    d = Drawing(
        "Tasks send messages to the mailboxes of servers, each of which one task owns",
        "Three tasks send messages to three mailboxes inside a group supervisor. Behind each mailbox one owner task "
        "holds the connection to one server. The third server has died and is being restarted; its mailbox still holds "
        "what waits.",
        narrow=narrow,
    )
    callers = [
        (Line("a Trio task"),),
        (Line("an asyncio task"), small("by the bridge")),
        (Line("an agent"), small("by an adapter")),
    ]
    owner, restarting = (
        (head("owner task"), code("mcp.Client")),
        (Line("being restarted"), small("after 0, 1, 2, 4 … s")),
    )
    rows = [
        ("time", 2, owner, "own", (Line("a process"), small("stdin, stdout"))),
        ("docs", 1, owner, "own", (Line("a URL"), small("HTTP"))),
        ("git", 3, restarting, "dead", (Line("a dead process"), small("its calls ended"))),
    ]
    top = 150 if narrow else 66
    step = 116 if narrow else 94
    inside, right = (4, 250) if narrow else (186, 554)
    letters, middle, server = (18, 88, 262) if narrow else (206, 344, 600)
    d.rectangle(Box(inside, top - 28, right - inside, 3 * step + 32), "group", 12)
    d.text(inside + 12, top - 14, code("open_servers(…)"), room=130, anchor="start")
    for number, (name, count, actor, kind, other) in enumerate(rows):
        y = top + number * step
        d.rectangle(Box(inside + 6, y, right - inside - 12, step - 8), "box", 10)
        d.text(inside + 14, y + 13, small(f"supervisor of “{name}”"), room=166, anchor="start")
        mailbox = d.mailbox(Box(letters, y + (43 if narrow else 34), 60 if narrow else 84, 26), count)
        d.text(mailbox.middle[0], mailbox.bottom + 11, small("mailbox"), room=60)
        place = Box(middle + 16, y + 24, right - 12 - middle - 16, step - 38)
        d.box(place, *actor, kind=kind)
        d.box(Box(server, y + 24, d.width - server - 4, step - 38), *other, kind="dead" if kind == "dead" else "box")
        d.arrow(f"M{mailbox.right + 2} {mailbox.middle[1]}H{place.x - 3}")
        d.arrow(f"M{place.right + 2} {mailbox.middle[1]}H{server - 3}", "cut" if kind == "dead" else "line")
    if narrow:
        for number, caller in enumerate(callers):
            task = d.box(Box(4 + number * 118, 24, 114, 62), *caller)
            d.arrow(f"M{task.middle[0] if number < 2 else 236} 88V{top - 31}")
        d.text(4, 12, head("your tasks"), room=120, anchor="start")
        d.text(server, top - 14, head("servers"), room=90, anchor="start")
    else:
        d.text(12, 20, head("your tasks"), room=120, anchor="start")
        d.text(server, top - 14, head("servers"), room=90, anchor="start")
        for number, caller in enumerate(callers):
            y = top + number * step + 20
            d.box(Box(12, y, 136, 50), *caller)
            d.arrow(f"M150 {y + 27}H{letters - 3}")
        ys = [top + number * step + 47 for number in range(3)]
        d.arrow(f"M150 {ys[0] + 8}C186 {ys[0] + 20} 164 {ys[1] - 14} {letters - 3} {ys[1] - 6}")
        d.arrow(f"M150 {ys[1] - 8}C186 {ys[1] - 20} 164 {ys[0] + 14} {letters - 3} {ys[0] + 6}")
    d.paragraph(
        12 if not narrow else 4,
        d.height + 10,
        d.width - (24 if not narrow else 8),
        small(
            "Only the owner task opens, uses and closes its connection. Other tasks put a message into the mailbox and "
            "wait for the one answer. A mailbox outlives its owner: the next one serves the messages that wait."
        ),
    )
    return d


# --- The way of a request ---------------------------------------------------------------------------------------------


def request(narrow: bool) -> Drawing:
    """Draw how a request is sent and answered, and what may end it early."""
    d = Drawing(
        "The way of one request, from the caller through the mailbox to the owner, and back",
        "The caller sends an envelope to the mailbox; a request task takes it when a slot is free, handles it through "
        "mcp.Client and answers exactly once. A caller that is cancelled leaves at once. A request that times out or "
        "whose connection is lost is answered in one step.",
        narrow=narrow,
    )
    left, right = ((4, 146), (180, 174)) if narrow else ((12, 300), (424, 300))
    d.text(left[0] + left[1] / 2, 14, head("caller's task"), room=left[1])
    d.text(right[0] + right[1] / 2, 14, head("owner's tasks"), room=right[1])
    y = 30.0

    def pair(
        mine: tuple[Line, ...], other: tuple[Line, ...], kinds: tuple[str, str], arrow: str, space: float = 22
    ) -> None:
        """Draw a box of the caller and one of the owner in a row, and the arrow from one to the other."""
        nonlocal y
        height = max(height_of(left[1], *mine) if mine else 0, height_of(right[1], *other))
        if mine:
            d.box(Box(left[0], y, left[1], height), *mine, kind=kinds[0])
        d.box(Box(right[0], y, right[1], height), *other, kind=kinds[1])
        from_left, to_right = left[0] + left[1] + 2, right[0] - 3
        if arrow == "back":
            d.arrow(f"M{right[0] - 2} {y + height / 2:g}H{from_left + 1}", "back")
        elif mine:
            d.arrow(f"M{from_left} {y + height / 2:g}H{to_right}", arrow)
        y += height + space

    def down() -> None:
        """Draw the arrow from the box above to the one below."""
        d.arrow(f"M{right[0] + right[1] / 2:g} {y - 20:g}v17")

    pair(
        (code("ref.call_tool(…)"), small("runs middleware; puts a frozen message into an envelope")),
        (head("mailbox"), small("the envelope waits for a free slot")),
        ("box", "mail"),
        "line",
    )
    down()
    pair(
        (),
        (head("a request task"), small("has the caller's context variables; starts in the step that finds the slot")),
        ("box", "own"),
        "line",
    )
    down()
    pair((), (code("handle(message)"), small("filters and checks; sends it on the session")), ("box", "box"), "line")
    down()
    pair(
        (head("result"), small("a value or an exception, exactly once")),
        (code("mcp.Client, link"), small("the streams are the pipes; the answer goes straight to the caller")),
        ("box", "box"),
        "back",
        30,
    )
    pair(
        (head("cancelled?"), small("the caller leaves at once")),
        (small("If it waits, it is never served. If it was sent, its task is cancelled and the server notified."),),
        ("dead", "box"),
        "cut",
    )
    pair(
        (head("an exception"), small("that says which")),
        (small("It timed out, or the connection was lost: one step answers all of them, before anything is closed."),),
        ("box", "dead"),
        "back",
        0,
    )
    return d


# --- The states of a server -------------------------------------------------------------------------------------------

GROUPS: Final = {
    "connected": [each for each in SERVER_STATES if each in CONNECTED],
    "parked": [each for each in SERVER_STATES if each in PARKED],
}
"""Boxes around several states; an arrow from or to such a box is one for each of them."""

ARROWS: Final = [
    *[("pending", "connecting"), ("connecting", "ready"), ("connecting", "degraded"), ("connecting", "backoff")],
    *[("ready", "degraded"), ("degraded", "ready"), ("degraded", "unhealthy"), ("unhealthy", "degraded")],
    *[("ready", "unhealthy"), ("unhealthy", "ready"), ("connected", "backoff"), ("backoff", "connecting")],
    *[("backoff", "parked"), ("connected", "stopping"), ("stopping", "stopped")],
]
"""The transitions that have an arrow. All others of the table are written into the boxes."""


def drawn_transitions() -> set[tuple[str, str]]:
    """Return the transitions that have an arrow, state by state.

    Raises:
        ValueError: an arrow is not in the table of the code.
    """
    drawn = {
        (old, new) for start, end in ARROWS for old in GROUPS.get(start, [start]) for new in GROUPS.get(end, [end])
    }
    if wrong := sorted(drawn - set(transitions())):
        raise ValueError(f"the table of states does not allow {wrong}; change ARROWS")
    return drawn


def transitions() -> Iterator[tuple[str, str]]:
    """Yield the transitions of the table, in its order."""
    for old in SERVER_STATES:
        yield from ((old, new) for new in SERVER_STATES if new in TRANSITIONS[old])


def others(*states: str) -> Line:
    """Return the transitions without an arrow of these states, as a line.

    Raises:
        ValueError: they differ, so they cannot share the line.
    """
    drawn = drawn_transitions()
    rest = [[new for old, new in transitions() if old == state and (old, new) not in drawn] for state in states]
    if any(each != rest[0] for each in rest):
        raise ValueError(f"{states} have different transitions: {rest}; give them arrows of their own")
    return small(f"also → {', '.join(rest[0])}")


def states(narrow: bool) -> Drawing:
    """Draw the states of a server and all transitions between them."""
    d = Drawing(
        "The states of a server, and which may follow which",
        "; ".join(
            f"{old} may be followed by {', '.join(n for o, n in transitions() if o == old)}" for old in SERVER_STATES
        ),
        narrow=narrow,
    )
    width = 150 if narrow else 280
    left, right = (4, 204) if narrow else (12, 444)
    tall = max(height_of(width, code(each), others(each)) for each in ("pending", "connecting"))
    d.box(Box(left, 8, width, tall), code("pending"), others("pending"))
    top = d.box(Box(right, 8, width, tall), code("connecting"), others("connecting"))
    d.arrow(f"M{left + width + 2} 22H{right - 3}")
    group = _group(d, Box(right, top.bottom + 34, width, 0), "connected", 26, arrows=True)
    for start, end in pairwise(group[1:]):
        d.arrow(f"M{start.middle[0]:g} {start.bottom + 3:g}V{end.y - 3:g}", both=True)
    ready, degraded, unhealthy = group[1:]
    d.arrow(f"M{ready.x + 24:g} {top.bottom + 2:g}V{ready.y - 3:g}")
    d.arrow(f"M{right + width - 9:g} {top.bottom + 2:g}V{degraded.middle[1]:g}H{degraded.right + 3:g}")
    d.arrow(f"M{ready.x - 3:g} {ready.middle[1]:g}h-10V{unhealthy.middle[1]:g}h10", both=True)
    connected = group[0]
    height = height_of(width, code("backoff"), others("backoff"))
    backoff = d.box(Box(left, connected.y + 22, width, height), code("backoff"), others("backoff"), kind="dead")
    d.arrow(f"M{right - 2} {connected.y + 60:g}H{backoff.right + 3}", "cut")
    d.arrow(f"M{right - 2} {top.bottom - 10:g}L{backoff.right + 3} {backoff.y + 22:g}", "cut")
    d.arrow(f"M{backoff.right - 26} {backoff.y - 2:g}L{right - 3} {top.bottom - 26:g}")
    parked = _group(d, Box(left, backoff.bottom + 30, width, 0), "parked", 8, kind="dead")[0]
    d.arrow(f"M{backoff.middle[0]:g} {backoff.bottom + 2:g}V{parked.y - 3:g}", "cut")
    height = height_of(width, code("stopping"), others("stopping"))
    stopping = d.box(Box(right, connected.bottom + 30, width, height), code("stopping"), others("stopping"))
    d.arrow(f"M{stopping.middle[0]:g} {connected.bottom + 2:g}V{stopping.y - 3:g}")
    height = height_of(width, code("stopped"), others("stopped"))
    stopped = d.box(Box(right, stopping.bottom + 30, width, height), code("stopped"), others("stopped"))
    d.arrow(f"M{stopped.middle[0]:g} {stopping.bottom + 2:g}V{stopped.y - 3:g}")
    return d


def _group(d: Drawing, place: Box, name: str, gap: float, *, kind: str = "own", arrows: bool = False) -> list[Box]:
    """Draw a box around the states of a group; return it, and the boxes of its states."""
    inset, note = (20 if arrows else 10), others(*GROUPS[name])
    inner, size = place.width - 2 * inset, height_of(place.width, code(name))
    rest = height_of(place.width, note) - 6
    height = 24 + len(GROUPS[name]) * (size + gap) - gap + 4 + rest
    whole = Box(place.x, place.y, place.width, height)
    d.rectangle(whole, "group", 10)
    anchor = place.x + (44 if arrows else 10)
    d.text(anchor + 8, place.y + 13, small(name), room=100, anchor="start")
    boxes = [Box(place.x + inset, place.y + 24 + at * (size + gap), inner, size) for at in range(len(GROUPS[name]))]
    for state, box in zip(GROUPS[name], boxes, strict=True):
        d.box(box, code(state), kind=kind)
    d.paragraph(place.x + place.width / 2, boxes[-1].bottom + 4, place.width - 12, note, anchor="middle")
    return [whole, *boxes]


# --- Four calls while a server dies -----------------------------------------------------------------------------------


def calls(narrow: bool) -> Drawing:
    """Draw the recorded calls: time runs downward, and each step has its own row."""
    steps = _recording.committed("calls")["steps"]
    d = Drawing(
        "Four calls while a server is killed, restarted and stopped",
        "; ".join(f"{step['at']:.3f} s: {_said(step)}" for step in steps),
        narrow=narrow,
    )
    program, actor, process = (64, 200, 318) if narrow else (130, 400, 640)
    for x, name in ((program, "your program"), (actor, "the actor"), (process, "a process")):
        d.text(x, 14, head(name) if not narrow else Line(name), room=112)
    rows = list(_rows(steps))
    bottom = 44 + 34 * len(rows)
    for x in (program, actor):
        d.add(f'<path class="lane" d="M{x} 26V{bottom}"/>', bottom)
    queued = {step["call"]: number for number, (step, _) in enumerate(rows) if step["what"] == "sent"}
    y, alive, below = 44.0, 26.0, d.mark()
    for number, (step, ways) in enumerate(rows):
        d.text(2 if narrow else 12, y + 4, small(_clock(step["at"])), room=56, anchor="start")
        match step["what"]:
            case "killed" | "stopped":
                d.add(f'<path class="lane" d="M{process} {alive:g}V{y + 4:g}"/>', at=below)
                d.text(process, y + 5, Line("✕"), room=12, more="red")
                d.text(process - 12, y + 4, small(_said(step)), room=110, anchor="end", more="red")
                alive = 0
            case "connecting":
                alive = y + 10
        for start, end, kind in ways:
            x = {"program": program, "actor": actor, "process": process}
            begin, stop = x[start], x[end]
            low, high = min(begin, stop), max(begin, stop)
            d.arrow(f"M{begin + (3 if stop > begin else -3)} {y + 10:g}H{stop - (4 if stop > begin else -4)}", kind)
            red = "red" if step["what"] == "raised" else ""
            middle = (low + min(high, actor if low == program else high)) / 2  # not across the lane of the actor
            waits = start == "program" and end == "actor" and step["call"] in queued
            words = _said(step, short=narrow) + (" waits" if waits else "")
            d.text(middle, y, small(words), room=2 * (middle - low) - 8, more=red)
            if waits:
                d.rectangle(Box(actor - 4, y + 10, 8, 34 * (queued[step["call"]] - number)), "mail", 4, at=below)
        y += 34
    return d


def _rows(steps: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], list[tuple[str, str, str]]]]:
    """Yield the steps with their arrows. A call that is sent at once is one arrow from the program to the process."""
    ways = {
        "called": [("program", "actor", "line")],
        "sent": [("actor", "process", "line")],
        "returned": [("process", "program", "back")],
        "raised": [("actor", "program", "cut")],
        "connecting": [("actor", "process", "line")],
        "ready": [("process", "actor", "back")],
    }
    at_once = {step["call"] for step, after in pairwise(steps) if (step["what"], after["what"]) == ("called", "sent")}
    for step in steps:
        if step["what"] == "called" and step["call"] in at_once:
            yield step, [("program", "process", "line")]
        elif step["what"] == "sent" and step["call"] in at_once:
            continue
        elif step["what"] in ways or step["what"] in {"killed", "stopped"}:
            yield step, ways.get(step["what"], [])


def _said(step: dict[str, Any], *, short: bool = False) -> str:
    """Return the words for a step."""
    if step["what"] == "raised":
        name, _, more = step["text"].partition(", ")
        return name if short else f"call {step['call']}: {name}, {more}"
    return {
        "called": f"call {step.get('call')}",
        "sent": f"call {step.get('call')} is sent",
        "returned": f"result of call {step.get('call')}",
        "killed": "kill -9",
        "connecting": "new process" if short else "starts a new process",
        "ready": "ready",
        "stopped": "stop()",
        "backoff": "the server is lost",
        "stopping": "the server is stopping",
    }[step["what"]]


def _clock(seconds: float) -> str:
    """Return a time since the first call."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


# --- What calls cost --------------------------------------------------------------------------------------------------

COSTS: Final = re.compile(r"^\| (.*), µs a call \|(.*)\|\n\|[-|]+\|\n((?:\|.*\|\n)+)", re.MULTILINE)

DRAWN_WAYS: Final = ("over stdio", "over HTTP", "to a server in the same process")
"""The tables whose bars are drawn."""

CostTable: TypeAlias = tuple[str, list[str], list[tuple[str, list[float]]]]
"""The way to the server, the columns, and for each client the microseconds."""


def cost_tables(page: str) -> list[CostTable]:
    """Return the tables of microseconds of the page about speed."""
    found: list[CostTable] = []
    for way, columns, body in COSTS.findall(page):
        rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in body.splitlines()]
        read = [(name, list(map(float, times))) for name, *times in rows]
        found.append((way, [each.strip() for each in columns.split("|")], read))
    if not found:
        raise ValueError("docs/design/speed.md has no table of microseconds")
    return found


def costs(narrow: bool) -> Drawing:
    """Draw the time of a call with each client as bars, for each way to a server on a scale of its own."""
    page = (DOCS / "design" / "speed.md").read_text().replace("`", "")
    tables = [each for each in cost_tables(page) if each[0] in DRAWN_WAYS]
    said = "; ".join(
        f"{way}: {', '.join(f'{name} {times[0]:.0f}, {times[1]:.0f} and {times[2]:.0f}' for name, times in rows)}"
        for way, _, rows in tables
    )
    _, columns, _ = tables[0]
    d = Drawing(
        "Microseconds of a call with each client",
        f"Short is good. With {', '.join(columns)}: {said}.",
        narrow=narrow,
    )
    kinds = [f"bar{each.split()[0]}" for each in columns]
    left, start = (4, 4) if narrow else (12, 250)
    x = float(start)
    for kind, column in zip(kinds, columns, strict=True):
        d.rectangle(Box(x, 8, 11, 11), kind)
        d.text(x + 16, 13.5, small(column), room=86, anchor="start")
        x += 105
    y = 34.0
    for way, _, rows in tables:
        d.text(left, y + 8, head(f"{way}, µs"), room=d.width - 2 * left, anchor="start")
        y = _bars(d, y + 22, (left, start), kinds, rows, narrow) + 8
    return d


def _bars(
    d: Drawing,
    y: float,
    edges: tuple[float, float],
    kinds: Sequence[str],
    rows: Sequence[tuple[str, Sequence[float]]],
    narrow: bool,
) -> float:
    """Draw the bars of one way, ours first; return their lower edge."""
    left, start = edges
    scale = (d.width - start - 56) / max(time for _, times in rows for time in times)
    for name, times in rows:
        label = head(name) if name == "mcp_actors" else small(name)
        label_width = d.width - 8 if narrow else start - left - 16
        top = y
        if narrow:
            top = d.paragraph(left, y, label_width, label) + 1
        else:
            lines = height_of(label_width + 12, label) - 12
            d.paragraph(left, y + (42 - lines) / 2, label_width, label)
        for kind, time in zip(kinds, times, strict=True):
            bar = Box(start, top + 2, round(scale * time, 1), 10)
            d.rectangle(bar, kind)
            d.text(bar.right + 5, top + 7, small(f"{time:.0f}"), room=46, anchor="start", more="halo")
            top += 14
        y = top + 8
    return y


# --- A server that is killed while ``mcp-actors watch`` shows it ------------------------------------------------------


def watch(narrow: bool) -> Drawing:
    """Draw the recorded screens of ``mcp-actors watch`` as an animation that repeats itself.

    A row is drawn once for each text that it has shown, and is visible while it showed that. Programs that do not
    animate, and readers who do not want it, see the moment after the kill.
    """
    recording = _recording.committed("watch-narrow" if narrow else "watch")
    frames = recording["frames"]
    d = Drawing(
        "mcp-actors watch while a server is killed: it is restarted, and serves again soon after",
        "A terminal with a table of three servers. The process of the server time is killed with kill -9. Its row says "
        "that it is connecting, and why; then it is ready again in another process. The others go on.",
        narrow=narrow,
    )
    left = 8 if narrow else 24
    cell, line = (d.width - 2 * left) / recording["columns"], 16 if narrow else 19
    d.style(f".screen{{font-size:{cell / 0.602:.2f}px}}.f{{visibility:hidden}}.keep{{visibility:visible}}")
    d.style("@media(prefers-reduced-motion:reduce){.f{animation:none!important}}")
    rows = max(len(frame["screen"]) for frame in frames)
    below = 52 + rows * line
    d.framed = True
    _cells(d, left, 20, cell, [("$ mcp-actors watch", "")])
    d.add(f'<path class="lane" d="M0 {below:g}H{d.width}"/>')
    _cells(d, left, below + 20, cell, [("$", "")])
    parts: dict[tuple[int, int], list[tuple[float, list[tuple[str, str]]]]] = {}
    for row in range(rows):
        shown = [frame["screen"][row] if row < len(frame["screen"]) else [] for frame in frames]
        for first, last in _spells(shown):
            parts.setdefault((first, last), []).append((48 + row * line, shown[first]))
    typed = next(number for number, frame in enumerate(frames) if "typed" in frame)
    parts.setdefault((typed, len(frames)), []).append((below + 20, [(f"  {frames[typed]['typed']}", "")]))
    begins = [*(frame["at"] for frame in frames), frames[-1]["at"] + 2]
    for number, ((first, last), texts) in enumerate(sorted(parts.items())):
        keep = " keep" if first <= typed + 1 < last else ""
        begin, end = (100 * begins[each] / begins[-1] for each in (first, last))
        always = (first, last) == (0, len(frames))
        d.add("<g>" if always else f'<g class="f{keep}" style="animation:k{number} {begins[-1]:g}s step-end infinite">')
        if not always:
            d.style(_keyframes(number, begin, end))
        for y, runs in texts:
            _cells(d, left, y, cell, runs)
        d.add("</g>")
    return d


def _spells(shown: list[Any]) -> Iterator[tuple[int, int]]:
    """Yield the frames between which a row stays the same, the last one excluded, unless it is empty."""
    first = 0
    for number in range(1, len(shown) + 1):
        if number == len(shown) or shown[number] != shown[first]:
            if shown[first]:
                yield first, number
            first = number


def _keyframes(number: int, begin: float, end: float) -> str:
    """Return the rule that shows something between two parts of the animation, in percent."""
    steps = [(0.0, "hidden")] if begin else []
    steps += [(begin, "visible"), (end, "hidden" if end < 100 else "visible")]
    steps += [(100.0, "hidden")] if end < 100 else []
    return f"@keyframes k{number}{{{''.join(f'{at:.3g}%{{visibility:{seen}}}' for at, seen in steps)}}}"


def _cells(d: Drawing, left: float, y: float, cell: float, runs: Iterable[tuple[str, str]]) -> None:
    """Write a row of a terminal: each word, or words with one space between them, at the place of its cells."""
    column = 0
    for text, style in runs:
        for piece in re.finditer(r"\S+(?: \S+)*", text):
            x, length = left + (column + piece.start()) * cell, len(piece[0]) * cell
            classes = " ".join(each for each in ("code screen", style) if each)
            d.add(
                f'<text class="{classes}" x="{x:.2f}" y="{y:g}" textLength="{length:.1f}" '
                f'lengthAdjust="spacingAndGlyphs">{escape(piece[0], quote=False)}</text>',
                y + 8,
            )
        column += len(text)


# --- Files and pages --------------------------------------------------------------------------------------------------

DRAWN: Final[dict[str, Callable[[bool], Drawing]]] = {
    "calls": calls,
    "costs": costs,
    "house": house,
    "request": request,
    "states": states,
    "watch": watch,
}
"""The pictures by name."""


def files() -> dict[str, str]:
    """Return the content of each file of a picture, by its name."""
    return {
        f"{name}{'-narrow' if narrow else ''}.svg": draw(narrow).svg()
        for name, draw in DRAWN.items()
        for narrow in (False, True)
    }


def main() -> None:
    """Write all pictures."""
    for name, content in files().items():
        (PICTURES / name).write_text(content)


_IMAGE: Final = re.compile(r"!\[([^\]]*)\]\((?:\.\./)*pictures/(\w+)\.svg\)")


def fill(app: Any, name: str, source: list[str]) -> None:
    """Give the pictures of a page their narrow form (a handler of Sphinx' ``source-read``)."""
    home = "../" * name.count("/") + "_static"

    def picture(found: re.Match[str]) -> str:
        alt, file = escape(found[1]), f"{home}/{found[2]}"
        narrow = f'<source media="{NARROW}" srcset="{file}-narrow.svg">'
        return f'<picture class="drawing">{narrow}<img src="{file}.svg" alt="{alt}"></picture>'

    source[0] = _IMAGE.sub(picture, source[0])


if __name__ == "__main__":
    main()
