"""What a command prints: results on stdout, errors and progress on stderr, JSON if asked for."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.text import Text

__all__ = ["Output"]


class Output:
    """The two streams of a command. Colour is for terminals only, and `NO_COLOR` is respected.

    Args:
        as_json: whether results are printed as JSON, and nothing else on stdout.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.results = Console(highlight=False)
        self.messages = Console(stderr=True, highlight=False)

    def line(self, *parts: str | tuple[str, str]) -> None:
        """Print one line of a result, in pieces that may have a style. It is never wrapped or shortened."""
        if not self.as_json:
            self.results.print(Text.assemble(*parts), soft_wrap=True)

    def json(self, data: Any) -> None:
        """Print a result as JSON, if that was asked for."""
        if self.as_json:
            indent = 2 if self.results.is_terminal else None
            text = json.dumps(data, indent=indent, ensure_ascii=False, default=str)
            self.results.print(Text(text), soft_wrap=True)

    def error(self, error: BaseException | str) -> None:
        """Say on stderr what is wrong, and what goes with it."""
        self._message("error", "bold red", str(error))
        for note in getattr(error, "__notes__", ()):
            self._message("error", "bold red", str(note))

    def warning(self, text: str) -> None:
        """Say on stderr what may be wrong."""
        self._message("warning", "yellow", text)

    def _message(self, word: str, style: str, text: str) -> None:
        self.messages.print(Text.assemble((f"{word}:", style), " ", text), soft_wrap=True)
