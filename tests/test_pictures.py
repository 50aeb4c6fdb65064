"""The pictures show what the code, the pages and the recordings say, and can be read in any font.

``python docs/_pictures.py`` draws them, and ``python docs/_recording.py`` records what two of them show.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple
from xml.etree import ElementTree

import pytest

from mcp_actors.servers.record._states import TRANSITIONS

from .benchmarks import bars
from .source import PAGES, ROOT, docs_module

README: Final = ROOT / "README.md"
DRAWN: Final = sorted((ROOT / "docs" / "pictures").glob("*.svg"))
IN_EM: Final = {"plain": 0.62, "bold": 0.68}
"""The mean width of a character in the widest fonts for text, such as DejaVu Sans, Verdana and Courier."""


pictures: Final = docs_module("_pictures")
drawing: Final = docs_module("_drawing")
recording: Final = docs_module("_recording")


class Rectangle(NamedTuple):
    """A box of a picture."""

    left: float
    top: float
    right: float
    bottom: float

    def holds(self, left: float, top: float, right: float, bottom: float) -> bool:
        """Return True if something is inside, but for the rounding of its numbers."""
        return (
            self.left <= left + 0.1
            and right <= self.right + 0.1
            and self.top <= top + 0.1
            and bottom <= self.bottom + 0.1
        )


def elements(picture: Path, tag: str) -> Iterator[ElementTree.Element]:
    """Yield the elements of a picture."""
    return ElementTree.parse(picture).iter(f"{{http://www.w3.org/2000/svg}}{tag}")


def texts(picture: Path) -> list[str]:
    """Return the texts of a picture, in order."""
    return [text.text or "" for text in elements(picture, "text")]


def rectangles(picture: Path) -> list[Rectangle]:
    """Return the boxes of a picture that texts are in: all but the bars and the envelopes."""
    found = []
    for each in elements(picture, "rect"):
        x, y, width, height = (float(each.get(name, "0")) for name in ("x", "y", "width", "height"))
        if not re.match(r"bar|letter", each.get("class", "")):
            found.append(Rectangle(x, y, x + width, y + height))
    return found


def extent(text: ElementTree.Element, length: float) -> tuple[float, float]:
    """Return the left and the right edge of a text of this length."""
    share = {"start": 0, "middle": 0.5, "end": 1}[text.get("text-anchor", "start")]
    left = float(text.get("x", "")) - share * length
    return left, left + length


def size_of(picture: Path, text: ElementTree.Element) -> float:
    """Return the size of the font of a text, in pixels."""
    classes = text.get("class", "").split()
    if "screen" in classes:
        found = re.search(r"\.screen\{font-size:([\d.]+)px", picture.read_text())
        assert found is not None
        return float(found[1])
    return 12.0 if {"small", "code"} & set(classes) else 13.0


@pytest.mark.parametrize("picture", DRAWN, ids=lambda path: path.name)
def test_no_text_lies_outside_its_box_in_any_font(picture: Path) -> None:
    """Neither in the length that is set, nor in the widest font where that is ignored."""
    boxes = rectangles(picture)
    for text in elements(picture, "text"):
        words, size = text.text or "", size_of(picture, text)
        y, classes = float(text.get("y", "")), text.get("class", "").split()
        bold = "head" in classes or "bold" in classes
        # The cells of a terminal have one width in every font that is made for it.
        em = 0.605 if "screen" in classes else IN_EM["bold" if bold else "plain"]
        set_length = float(text.get("textLength", ""))
        assert text.get("lengthAdjust") == "spacingAndGlyphs"
        middle = sum(extent(text, set_length)) / 2
        around = [box for box in boxes if box.holds(middle, y - 1, middle, y)]
        smallest = min(around, key=lambda box: (box.right - box.left) * (box.bottom - box.top))
        for length in (set_length, em * size * len(words)):
            left, right = extent(text, length)
            assert smallest.holds(left, y - 0.8 * size, right, y + 0.25 * size), words


@pytest.mark.parametrize("picture", DRAWN, ids=lambda path: path.name)
def test_a_picture_works_where_only_images_are_allowed(picture: Path) -> None:
    text = picture.read_text()
    assert len(text) < 100_000
    assert re.findall(r"<script|<foreignObject|href=|@import|url\((?!#)", text) == []
    assert "@media(prefers-color-scheme:dark)" in text
    assert "<title>" in text
    [width] = re.findall(r'<svg [^>]* width="(\d+)"', text)
    assert int(width) <= (390 if picture.stem.endswith("-narrow") else 736)


def test_the_committed_pictures_are_those_that_are_drawn_now() -> None:
    drawn = pictures.files()
    assert sorted(drawn) == [path.name for path in DRAWN]
    stale = [path.name for path in DRAWN if path.read_text() != drawn[path.name]]
    assert stale == [], "run: python docs/_pictures.py"


def test_a_text_that_has_no_room_is_refused() -> None:
    sheet = drawing.Drawing("A title", "A description", narrow=True)
    with pytest.raises(ValueError, match=r"'a long text' takes 89 pixels, and has room for 80"):
        sheet.text(0, 0, drawing.Line("a long text"), room=80)
    with pytest.raises(ValueError, match=r"'unbreakable' does not fit into 68 pixels; shorten it, or widen its box"):
        sheet.box(drawing.Box(0, 0, 80, 80), drawing.Line("an unbreakable word"))
    with pytest.raises(ValueError, match=r"'some words' needs a box 45 pixels high, and has 40"):
        sheet.box(drawing.Box(0, 0, 80, 40), drawing.Line("some words"))


# --- The states -------------------------------------------------------------------------------------------------------


def written_transitions(picture: Path) -> set[tuple[str, str]]:
    """Return the transitions that a picture writes into its boxes: states, then ``also → …`` in one or more lines."""
    found: set[tuple[str, str]] = set()
    states: list[str] = []
    listed: list[str] = []
    for text in elements(picture, "text"):
        words = text.text or ""
        if "code" in text.get("class", ""):
            states, listed = ([words] if listed else [*states, words]), []
        elif words not in pictures.GROUPS:
            listed += words.removeprefix("also → ").rstrip(",").split(", ")
            found |= {(old, new) for old in states for new in listed}
    return found


@pytest.mark.parametrize("form", ["states.svg", "states-narrow.svg"])
def test_the_picture_of_the_states_has_the_transitions_of_the_table(form: str) -> None:
    picture = ROOT / "docs" / "pictures" / form
    written, arrows = written_transitions(picture), pictures.drawn_transitions()
    assert written | arrows == {(old, new) for old, following in TRANSITIONS.items() for new in following}
    assert written & arrows == set()
    heads = [name for path in elements(picture, "path") for name in path.attrib if name.startswith("marker-")]
    assert len(heads) == len(pictures.ARROWS)


def test_an_arrow_that_the_table_does_not_allow_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(pictures.TRANSITIONS, "stopping", frozenset({"backoff", "pending"}))
    with pytest.raises(ValueError, match=r"does not allow \[\('stopping', 'stopped'\)\]; change ARROWS"):
        pictures.states(False)


def test_a_new_transition_is_written_into_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(pictures.TRANSITIONS, "stopped", TRANSITIONS["stopped"] | {"failed"})
    assert "also → pending, connecting, failed" in pictures.states(False).svg()


def test_states_that_share_a_box_have_to_have_the_same_transitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(pictures.TRANSITIONS, "failed", TRANSITIONS["failed"] | {"ready"})
    with pytest.raises(ValueError, match="have different transitions"):
        pictures.states(False)


# --- The costs --------------------------------------------------------------------------------------------------------


def cost_tables() -> dict[str, dict[str, list[float]]]:
    """Return the tables of the page about speed: the microseconds by the way to the server and the client."""
    page = (ROOT / "docs" / "design" / "speed.md").read_text()
    return {way: dict(rows) for way, _, rows in pictures.cost_tables(page)}


def test_the_tables_have_a_minimal_client_for_every_way_and_ours_is_the_first() -> None:
    assert [*cost_tables()] == [*bars.WAYS]
    for rows in cost_tables().values():
        assert [*rows][:2] == ["mcp_actors", "a minimal client"]


@pytest.mark.parametrize("form", ["costs.svg", "costs-narrow.svg"])
def test_the_bars_are_as_long_as_the_numbers_of_the_tables(form: str) -> None:
    picture = ROOT / "docs" / "pictures" / form
    groups = [[each for times in cost_tables()[way].values() for each in times] for way in bars.DRAWN]
    numbers = [each for group in groups for each in group]
    assert len(numbers) > 20
    assert [float(text) for text in texts(picture) if re.fullmatch(r"\d+", text)] == numbers
    widths = [float(each.get("width", "")) for each in elements(picture, "rect") if "bar" in each.get("class", "")]
    legend, drawn = widths[:3], iter(widths[3:])
    assert len(set(legend)) == 1
    for group in groups:
        first, *rest = [next(drawn) for _ in group]
        assert [each / first for each in rest] == pytest.approx([each / group[0] for each in group[1:]], rel=0.05)
    assert not [*drawn]


def test_the_readme_sums_up_the_tables_and_names_what_is_quicker() -> None:
    text = README.read_text()
    when = re.search(r"in the same run \(([^)]*)\)", text)
    assert when is not None
    tables = cost_tables()
    part = bars.readme_part(tables, when[1])
    assert part in text, "run: python -m tests.benchmarks.bars"
    named = " ".join(part.split()).partition("how many times: ")[2].partition(". `nox")[0].split("; ")
    for way, short in bars.DRAWN.items():
        ours, *_ = tables[way].values()
        text = next((each for each in named if each.startswith(f"{short} ")), "")
        for name, times in tables[way].items():
            assert (f"{name} (" in text) == any(other < one for one, other in zip(ours, times, strict=True))


# --- Pages ------------------------------------------------------------------------------------------------------------


def test_the_readme_begins_with_the_recording_and_has_at_most_120_lines() -> None:
    title, sentence, first, *_ = README.read_text().split("\n\n")
    assert title == "# mcp_actors"
    assert sentence.startswith("Connect a Python program")
    assert 'src="docs/pictures/watch.svg"' in first
    assert len(README.read_text().splitlines()) <= 120


def test_each_picture_of_the_readme_has_a_narrow_form_and_words() -> None:
    found = re.findall(
        r'<picture><source media="(.*)" srcset="(.*)-narrow.svg">\n<img src="(.*).svg" alt="(.+)"></picture>',
        README.read_text(),
    )
    assert len(found) == README.read_text().count("<picture")
    for media, narrow, wide, _ in found:
        assert media == pictures.NARROW
        assert narrow == wide
        assert (ROOT / f"{wide}.svg") in DRAWN


def test_each_picture_is_on_a_page() -> None:
    text = "".join(page.read_text() for page in PAGES)
    assert [name for name in pictures.DRAWN if f"pictures/{name}.svg" not in text] == []


def test_a_page_of_the_site_gets_both_forms_of_a_picture() -> None:
    source = ["Words.\n\n![A & B](../pictures/house.svg)\n"]
    pictures.fill(None, "howto/states", source)
    assert source[0] == (
        'Words.\n\n<picture class="drawing"><source media="(max-width: 700px)" srcset="../_static/house-narrow.svg">'
        '<img src="../_static/house.svg" alt="A &amp; B"></picture>\n'
    )


# --- The recordings ---------------------------------------------------------------------------------------------------


@pytest.fixture
def recorded_in_forks(programs_in_forks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Record programs and servers that are forks."""
    monkeypatch.setattr(recording, "SCRIPTS", Path(sys.executable).parent)


@pytest.mark.usefixtures("recorded_in_forks")
@pytest.mark.parametrize("name", recording.COLUMNS)
def test_watch_shows_the_screens_of_the_committed_recording(name: str) -> None:
    """With real servers, one of which is killed; but for times and process ids."""
    pytest.importorskip("cyclopts", reason="the extra 'cli' is not installed")
    now = recording.record_watch(recording.COLUMNS[name], before=0, after=0)
    assert recording.masked_frames(now) == recording.masked_frames(recording.committed(name)), "run: nox -s docs"


def test_four_calls_to_a_dying_server_end_as_in_the_committed_recording(caplog: pytest.LogCaptureFixture) -> None:
    now = recording.record_calls()
    assert recording.masked_steps(now) == recording.masked_steps(recording.committed("calls")), "run: nox -s docs"
    assert "was killed by SIGKILL" in caplog.text


def test_the_recording_shows_the_kill_its_reason_and_the_restart() -> None:
    before, typed, killed, after = recording.masked_frames(recording.committed("watch"))
    assert before[1].startswith("time ready 1 PID")
    assert typed == [*before, "kill -9 PID"]
    assert killed[1].startswith("time connecting 2")
    assert killed[2] == " error: its process was killed by SIGKILL while it was connected"
    assert after[1].startswith("time ready 2 PID")
    others = [[row for row in rows if row.startswith("git ")] for rows in (before, killed, after)]
    assert others == [others[0]] * 3


@pytest.mark.parametrize(("name", "picture"), [("watch", "watch.svg"), ("watch-narrow", "watch-narrow.svg")])
def test_every_word_of_the_recorded_screens_is_drawn(name: str, picture: str) -> None:
    frames = recording.committed(name)["frames"]
    words = {word for frame in frames for row in recording.plain(frame["screen"]) for word in row.split()}
    assert words <= {word for text in texts(ROOT / "docs" / "pictures" / picture) for word in text.split()}


def frame(seconds: float, text: str) -> dict[str, Any]:
    """Return a recorded screen of one row."""
    return {"at": seconds, "screen": [[[text, "green"]]]}


def test_a_recording_that_differs_in_times_and_ids_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(recording, "PICTURES", tmp_path)
    first = {"columns": 80, "frames": [frame(0.0, "time  ready  1  4711   9 s")]}
    later = {"columns": 80, "frames": [frame(0.1, "time  ready  1  12345  10 s")]}
    other = {"columns": 80, "frames": [frame(0.1, "time  ready  2  12345  10 s")]}
    written = [recording.write("watch", each, recording.masked_frames) for each in (first, later, other)]
    assert written == [True, False, True]
    assert json.loads((tmp_path / "watch.json").read_text()) == other


@pytest.mark.parametrize(
    ("written", "screen"),
    [
        ("one\r\n\x1b[1mtwo\x1b[0m  \x1b[32mthree\x1b[0m ", [[("one", "")], [("two  ", "bold"), ("three", "green")]]),
        ("one\r\ntwo\r\x1b[2K\x1b[1A\x1b[2Kthree", [[("three", "")]]),
        ("\x1b[?25labc\rx", [[("xbc", "")]]),
    ],
)
def test_the_terminal_shows_what_is_written(written: str, screen: list[Any]) -> None:
    terminal = recording.Emulator()
    terminal.feed(written)
    assert terminal.screen() == screen


@pytest.mark.parametrize("written", ["\x1b[3;4H", "\x1b]0;title\x07", "\x07", "\x1b[1K"])
def test_a_sequence_that_the_terminal_does_not_know_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match=r"the terminal does not know .*; add it to Emulator"):
        recording.Emulator().feed(written)
