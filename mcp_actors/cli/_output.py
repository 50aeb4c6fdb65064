"""What a command prints: results on stdout, errors and progress on stderr, JSON if asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from .._plain_text import indented, plain_text

__all__ = ["Output"]


_LONGEST: Final = 1024 * 1024  # characters that a terminal is given at once


class Output:
    """The two streams of a command. Colour is for terminals only, and `NO_COLOR` is respected.

    What servers say reaches a terminal as plain text, as it could do things there. Programs get it as it is.

    Args:
        as_json: whether results are printed as JSON, and nothing else on stdout.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.results = Console(highlight=False)
        self.messages = Console(stderr=True, highlight=False)

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Say on a terminal what is waited for, as long as it is."""
        if not what or not self.messages.is_terminal:
            yield
            return
        # It would refresh from a thread of its own.
        with Live(Text(what, style="dim"), console=self.messages, auto_refresh=False, transient=True):
            yield

    def line(self, *parts: str | tuple[str, str]) -> None:
        """Print one line of a result, in pieces that may have a style. It is never wrapped or shortened."""
        if not self.as_json:
            styled = [part if isinstance(part, tuple) else (part, "") for part in parts]
            pieces = [(_on_one_line(text), style) for text, style in styled]
            self.results.print(Text.assemble(*pieces), soft_wrap=True)

    def text(self, text: str) -> None:
        """Print a result that is a text of any length."""
        if not self.as_json:
            self._write(plain_text(text, limit=_LONGEST, lines=True) if self.results.is_terminal else text)

    def json(self, data: Any) -> None:
        """Print a result as JSON, if that was asked for."""
        if not self.as_json:
            return
        indent = 2 if self.results.is_terminal else None
        text = json.dumps(data, indent=indent, ensure_ascii=False, default=str)
        if not text.replace("\n", "").isprintable():
            text = json.dumps(data, indent=indent, default=str)
        self._write(text)

    def _write(self, text: str) -> None:
        # Not by rich, which would replace tabs.
        self.results.file.write(f"{text}\n")
        self.results.file.flush()

    def error(self, error: BaseException | str) -> None:
        """Say on stderr what is wrong, and what goes with it."""
        self._message("error", "bold red", str(error))
        for note in getattr(error, "__notes__", ()):
            self._message("error", "bold red", str(note))

    def failure(self, error: BaseException | str) -> None:
        """Say on stderr why there is no result; where JSON was asked for, say it in its place too."""
        self.error(error)
        self.json({"error": str(error)})

    def note(self, text: str) -> None:
        """Print a note on stderr."""
        self.messages.print(Text(_on_one_line(text), style="dim"), soft_wrap=True)

    def warning(self, text: str) -> None:
        """Say on stderr what may be wrong."""
        self._message("warning", "yellow", text)

    def progress(self, text: str) -> None:
        """Print progress on stderr."""
        self.messages.print(Text(plain_text(text, limit=_LONGEST), "dim"), soft_wrap=True)

    def _message(self, word: str, style: str, text: str) -> None:
        plain = indented(plain_text(text, limit=_LONGEST, lines=True))
        self.messages.print(Text.assemble((f"{word}:", style), " ", plain), soft_wrap=True)


def _on_one_line(text: str) -> str:
    """Return a text without what would act on a terminal, and with the spaces at its end, which fill a column."""
    return plain_text(text, limit=_LONGEST) + " " * (len(text) - len(text.rstrip(" ")))
