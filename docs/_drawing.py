"""Draw boxes, arrows and text as SVG that is readable in any font, on light and dark pages.

A browser draws an SVG in the fonts of its reader. So a text is set in the length that it has in Helvetica, whatever the
font (`textLength`), and a box has room for a much wider font, for programs that ignore that. A text without room is a
`ValueError`, so a picture that cannot be read is never written.

A picture has two forms: wide, for a page of documentation, and narrow, for a phone. Both follow the color scheme of the
page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Final, NamedTuple

WIDTHS: Final = {False: 736, True: 358}
"""Pixels: the column of the documentation, and that of a phone of 390 pixels; the key says if it is narrow."""

LINE: Final = 16.5
"""Pixels from one line of text to the next."""

PADDING: Final = 6
"""Pixels between the edge of a box and its text."""

SIZES: Final = {"plain": 13.0, "head": 13.0, "small": 12.0, "code": 12.0}
"""Pixels of the font of each style of text."""

WIDEST: Final = {"plain": 0.62, "head": 0.68, "small": 0.62, "code": 0.62}
"""The mean width of a character in the widest fonts that are in use for text (DejaVu Sans, Verdana, Courier), in em."""

_HELVETICA: Final = {
    "ijl'": 0.222,
    "|": 0.26,
    "tfI .,:;!/[]→": 0.278,
    "r-()“”": 0.333,
    "vcksxyzJ": 0.5,
    "FTZ": 0.611,
    "ABEKPSVXY&": 0.667,
    "wCDHNRU": 0.722,
    "GOQ": 0.778,
    "mM": 0.833,
    "W…—✕": 1.0,
}
_WIDTH_OF: Final = {character: width for characters, width in _HELVETICA.items() for character in characters}

_PALETTE: Final = """
page #ffffff #0d1117
ink #1f2937 #e5e7eb
pale #4b5563 #a8b3c2
edge #64748b #7d8896
line #475569 #9aa5b4
back #0369a1 #58b7f0
box #ffffff #161b22
group #f1f5f9 #11161d
groupedge #94a3b8 #4b5563
own #e0f2fe #0c2d48
ownedge #0284c7 #38bdf8
mail #fef3c7 #3a2a06
mailedge #d97706 #f59e0b
dead #fee2e2 #3b1418
cut #dc2626 #f87171
lane #cbd5e1 #374151
bar1 #7dd3fc #bae6fd
bar16 #0ea5e9 #38bdf8
bar128 #0369a1 #0284c7
green #15803d #4ade80
yellow #a16207 #facc15
red #b91c1c #f87171
"""
"""Names of colors, and each on a light and on a dark page."""

_ROWS: Final = [row.split() for row in _PALETTE.split("\n") if row]
_LIGHT: Final = {name: light for name, light, _ in _ROWS}
_DARK: Final = {name: dark for name, _, dark in _ROWS}
_COLORS: Final = """text{{fill:{ink}}}.small{{fill:{pale}}}.page{{fill:{page}}}.box{{fill:{box};stroke:{edge}}}
.group{{fill:{group};stroke:{groupedge}}}.own{{fill:{own};stroke:{ownedge}}}.mail{{fill:{mail};stroke:{mailedge}}}
.dead{{fill:{dead};stroke:{cut}}}.letter{{fill:{mailedge}}}.line{{stroke:{line}}}.back{{stroke:{back}}}
.halo{{stroke:{page}}}.cut{{stroke:{cut}}}.lane{{stroke:{lane}}}.h1{{fill:{line}}}.h2{{fill:{back}}}.h3{{fill:{cut}}}
.bar1{{fill:{bar1}}}.bar16{{fill:{bar16}}}.bar128{{fill:{bar128}}}
.dim{{fill:{pale}}}.green{{fill:{green}}}.yellow{{fill:{yellow}}}.red{{fill:{red}}}"""
_SHAPES: Final = """text{font-family:-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;font-size:13px}
.small{font-size:12px}.code{font-family:ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:12px}
.head,.bold{font-weight:600}.box,.group,.own,.mail,.dead{stroke-width:1.4}.dead{stroke-dasharray:5 4}
.line,.back,.cut{fill:none;stroke-width:1.5}.cut{stroke-dasharray:5 4}.lane{stroke-width:2}
.halo{stroke-width:4;paint-order:stroke}"""
_MARKERS: Final = {"line": "h1", "back": "h2", "cut": "h3"}
_MARKER: Final = (
    '<marker id="{0}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">'
    '<path class="{0}" d="M0 0L8 4L0 8z"/></marker>'
)


class Line(NamedTuple):
    """A piece of text and its style: ``plain``, ``head``, ``small`` or ``code``."""

    text: str
    style: str = "plain"


class Box(NamedTuple):
    """The place of a box."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Its right edge."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """Its lower edge."""
        return self.y + self.height

    @property
    def middle(self) -> tuple[float, float]:
        """Its center."""
        return self.x + self.width / 2, self.y + self.height / 2


def length(line: Line) -> float:
    """Return the pixels that a text takes in Helvetica, or in any font of fixed width."""
    if line.style == "code":
        return len(line.text) * 0.602 * SIZES["code"]
    em = sum(_WIDTH_OF.get(character, 0.556) for character in line.text)
    return em * SIZES[line.style] * (1.06 if line.style == "head" else 1)


def longest(line: Line) -> float:
    """Return the pixels that a text takes in the widest font."""
    return len(line.text) * WIDEST[line.style] * SIZES[line.style]


def wrapped(line: Line, width: float) -> Iterator[Line]:
    """Yield the lines of a text that has this width, in any font.

    Raises:
        ValueError: a word is too long.
    """
    words, current = line.text.split(" "), ""
    for word in words:
        longer = f"{current} {word}" if current else word
        if current and longest(Line(longer, line.style)) > width:
            yield Line(current, line.style)
            longer = word
        if longest(Line(longer, line.style)) > width:
            raise ValueError(f"{word!r} does not fit into {width:.0f} pixels; shorten it, or widen its box")
        current = longer
    yield Line(current, line.style)


def height_of(width: float, *lines: Line) -> float:
    """Return the height of a box of this width with these texts."""
    return LINE * sum(1 for line in lines for _ in wrapped(line, width - 2 * PADDING)) + 2 * PADDING


class Drawing:
    """One form of a picture. Its height is that of its content."""

    def __init__(self, title: str, description: str, *, narrow: bool) -> None:
        self.title, self.description = title, description
        self.narrow = narrow
        self.width = WIDTHS[narrow]
        self.height = 0.0
        self.framed = False
        self._parts: list[str] = []
        self._styles: list[str] = []

    def add(self, element: str, bottom: float = 0, *, at: int | None = None) -> None:
        """Add an element of SVG that ends at this height; with ``at``, below what was added after that mark."""
        self.height = max(self.height, bottom)
        self._parts.insert(len(self._parts) if at is None else at, element)

    def mark(self) -> int:
        """Return a mark between what was added before and what will be added."""
        return len(self._parts)

    def style(self, rules: str) -> None:
        """Add rules of CSS."""
        self._styles.append(rules)

    def text(self, x: float, y: float, line: Line, *, room: float, anchor: str = "middle", more: str = "") -> None:
        """Write one line of text.

        Args:
            x: its left edge, its middle or its right edge, as `anchor` says.
            y: its middle.
            line: the text.
            room: the width that it may take.
            anchor: ``start``, ``middle`` or ``end``.
            more: further classes of CSS.

        Raises:
            ValueError: it does not fit in the widest font.
        """
        if longest(line) > room + 0.01:
            raise ValueError(f"{line.text!r} takes {longest(line):.0f} pixels, and has room for {room:.0f}")
        classes = " ".join(each for each in (line.style.replace("plain", ""), more) if each)
        attributes = f' class="{classes}"' if classes else ""
        attributes += "" if anchor == "start" else f' text-anchor="{anchor}"'
        self.add(
            f'<text{attributes} x="{x:g}" y="{y + 4.4:g}" textLength="{length(line):.1f}" '
            f'lengthAdjust="spacingAndGlyphs">{escape(line.text, quote=False)}</text>',
            y + LINE / 2,
        )

    def paragraph(self, x: float, y: float, width: float, *lines: Line, anchor: str = "start") -> float:
        """Write text, wrapped; ``x`` is its left edge or, with another anchor, its middle. Return its lower edge."""
        for line in (each for whole in lines for each in wrapped(whole, width)):
            self.text(x, y + LINE / 2, line, room=width, anchor=anchor)
            y += LINE
        return y

    def box(self, place: Box, *lines: Line, kind: str = "box") -> Box:
        """Draw a box with text in its middle, wrapped.

        Raises:
            ValueError: the text does not fit.
        """
        needed = height_of(place.width, *lines) if lines else 0
        if needed > place.height + 0.01:
            raise ValueError(f"{lines[0].text!r} needs a box {needed:.0f} pixels high, and has {place.height:.0f}")
        self.rectangle(place, kind, 8)
        if lines:
            top = place.y + (place.height - needed) / 2 + PADDING
            self.paragraph(place.middle[0], top, place.width - 2 * PADDING, *lines, anchor="middle")
        return place

    def rectangle(self, place: Box, kind: str, radius: float = 2, *, at: int | None = None) -> None:
        """Draw a rectangle without text, at a mark if one is given."""
        x, y, width, height = place
        element = f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}"/>'
        self.add(element, place.bottom, at=at)

    def arrow(self, way: str, kind: str = "line", *, both: bool = False) -> None:
        """Draw an arrow along a path of SVG: ``line``, ``back`` or ``cut``; with two heads if it leads both ways."""
        head = _MARKERS[kind]
        start = f' marker-start="url(#{head})"' if both else ""
        self.add(f'<path class="{kind}" d="{way}"{start} marker-end="url(#{head})"/>')

    def mailbox(self, place: Box, letters: int) -> Box:
        """Draw a mailbox with some envelopes in it."""
        self.rectangle(place, "mail", 4)
        for number in range(letters):
            self.rectangle(Box(place.right - 17 - 15 * number, place.y + 5, 11, place.height - 10), "letter")
        return place

    def svg(self) -> str:
        """Return the whole picture."""
        size = f'viewBox="0 0 {self.width} {self.height + 12:g}" width="{self.width}" height="{self.height + 12:g}"'
        page = "page lane" if self.framed else "page"
        head = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<title>{escape(self.title)}</title>",
            f"<desc>{escape(self.description)}</desc>",
            "<style>",
            _SHAPES,
            colors(_LIGHT),
            f"@media(prefers-color-scheme:dark){{{colors(_DARK)}}}",
            *self._styles,
            "</style>",
            f"<defs>{''.join(map(_MARKER.format, _MARKERS.values()))}</defs>",
            f'<rect class="{page}" width="{self.width}" height="{self.height + 12:g}" rx="10"/>',
        ]
        return "\n".join([*head, *self._parts, "</svg>", ""])


def colors(palette: Mapping[str, str]) -> str:
    """Return the rules of CSS that paint with a palette."""
    return _COLORS.format(**palette)
