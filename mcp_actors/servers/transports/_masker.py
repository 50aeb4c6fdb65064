"""Keep the credentials of a connection out of what its server sends back.

A server repeats what it was given: a 401 quotes the token, a process prints its environment when it cannot start. Such
text ends in errors, events and logs. So whoever makes a text of ours from a text of a server asks the `Masker` of the
connection first. It is the only place that keeps resolved values, and it goes with the connection.

Results are not masked: they are data, and belong to the caller.
"""

from __future__ import annotations

import html
import json
import re
import traceback
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import quote, quote_plus

import httpx2
from mcp import MCPError
from mcp.types import ErrorData

from ..._errors import McpActorsError
from ...config._masking import MASK
from ...config._secrets import secrets_in

__all__ = ["Masker"]

MIN_LENGTH: Final = 8
"""Characters of a value that is masked. Shorter ones are words such as "true" or "8080", which texts need."""


_INPUT: Final = re.compile(r"input_value=.*(?=, input_type=)")
"""Where pydantic shows what it was given, with its middle left out, which may cut a credential."""

_EXPECTED: Final = (McpActorsError, MCPError, OSError, httpx2.HTTPError, BaseExceptionGroup)

E = TypeVar("E", bound=BaseException)


class Masked(Exception):
    """Takes the place of an exception whose text has a credential in it; its own has none."""


class Masker:
    """Replaces the values of one connection by their names, in whatever case and form a text has them.

    Args:
        harmless: values that are not masked.

    Attributes:
        longest: characters of the longest form of a value.
    """

    def __init__(self, harmless: Iterable[str] = ()) -> None:
        self._harmless = frozenset(harmless)
        self._names: dict[str, str] = {}  # by folded form: lower() depends on what is around a letter, as in "Σ"
        self._written: set[str] = set()  # and as a pattern matches them, letter by letter: "İ" folds to two
        self._pattern: re.Pattern[str] | None = None
        self.longest = 0

    def add(self, name: str, value: str, *, own_url: bool = False) -> None:
        """Mask a value from now on, and its parts (see `secrets_in`); `name` takes their place."""
        if value.casefold() in self._names:
            return
        for secret in secrets_in(value, own_url=own_url):
            if len(secret) >= MIN_LENGTH and secret not in self._harmless:
                for form in _forms(secret):
                    self._names.setdefault(form.casefold(), name)
                    self._written |= {form, form.casefold()}
        self.longest = max(map(len, self._written), default=0)
        self._pattern = None

    def add_all(self, field: str, values: Mapping[str, str]) -> None:
        """Mask the values of a field, such as ``env``."""
        for name, value in values.items():
            self.add(f"<{field}.{name}>", value)

    def __call__(self, text: str) -> str:
        """Return a text with every value in it masked. Takes time in proportion to its length."""
        if not self._is_in(text):
            return text
        return self._matcher().sub(lambda found: self._names.get(found[0].casefold(), MASK), text)

    def shown(self, words: object) -> str:
        """Return the words of somebody else's exception, or a traceback of it, without what a server sent."""
        return self(_INPUT.sub("input_value=…", str(words)))

    def _is_in(self, text: str) -> bool:
        # A search for each form is a hundred times as fast as the pattern, and usually there is nothing to mask.
        folded = text.casefold()
        return any(form in folded for form in self._names)

    def _matcher(self) -> re.Pattern[str]:
        if self._pattern is None:
            longest_first = sorted(self._written, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, longest_first)), re.IGNORECASE)
        return self._pattern

    def place_to_cut(self, text: str, at: int) -> int:
        """Return where to cut a text, at `at` or before it, so that no value is cut into two."""
        begin, end = max(at - self.longest, 0), at + self.longest
        if self._is_in(text[begin:end]):
            for found in self._matcher().finditer(text, begin, end):
                if found.start() < at < found.end():
                    return found.start()
        return at

    def data(self, value: Any) -> Any:
        """Return JSON-like data with every text in it masked; the same object if there was nothing to mask."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, Mapping):
            masked: Any = {self.data(key): self.data(each) for key, each in value.items()}
        elif isinstance(value, (list, tuple)):
            masked = [self.data(each) for each in value]
        else:
            return value
        return value if masked == value else masked

    def clean(self, error: E) -> E | Masked:
        """Let an exception be kept: without frames, whose locals hold what was resolved, and without credentials.

        That includes its causes. What an `mcp.MCPError` says stays as it came, but for the credentials in it.

        Returns:
            The same exception; `Masked` in the place of one whose text cannot be changed.
        """
        return self._clean(error, set())

    def _clean(self, error: E, seen: set[int]) -> E | Masked:
        if id(error) in seen:
            return error
        seen.add(id(error))
        ours = isinstance(error, McpActorsError)  # masked when it was made: our own words are not to be
        if not ours:
            _note_origin(error)
        error.__traceback__ = None
        for each in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
            self._clean(each, seen)
        if error.__cause__ is not None:
            error.__cause__ = self._clean(error.__cause__, seen)
        elif error.__context__ is not None:
            error.__context__ = self._clean(error.__context__, seen)
        return error if ours else self._masked(error)

    def _masked(self, error: E) -> E | Masked:
        error.args = tuple(self.data(each) for each in error.args)
        for name, value in vars(error).items():
            vars(error)[name] = None if isinstance(value, httpx2.Request | httpx2.Response) else self.data(value)
        if isinstance(error, MCPError):
            code, message, data = error.args
            error.error = ErrorData(code=code, message=message, data=data)
        text = self.shown(error)
        if text == str(error):
            return error
        masked = Masked(f"{type(error).__name__}: {text}")
        masked.__cause__ = error.__cause__
        return masked


def _note_origin(error: BaseException) -> None:
    """Note where an exception was raised that nobody expects, as its traceback goes."""
    if error.__traceback__ is None or isinstance(error, _EXPECTED):
        return
    *_, last = traceback.extract_tb(error.__traceback__)
    error.add_note(f"raised in {last.name} ({last.filename}:{last.lineno})")


def _forms(secret: str) -> Iterable[str]:
    """Yield a value as it may be written: bare, and within URLs, JSON, Python or HTML."""
    writable = secret.encode(errors="replace").decode()
    return (
        secret,
        quote(writable, safe=""),
        quote(writable),
        quote_plus(writable),
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        html.escape(secret),
    )
