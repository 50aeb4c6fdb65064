"""Name places in a configuration, in errors that show no values."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from typing import Final

from ..._errors import ConfigError
from .._validators import a_type, shown

_PLAIN: Final = re.compile(r"[A-Za-z0-9_$-]{1,64}")
_SHOWN_OF_KEY: Final = 40  # characters of a key that is not a plain word


def child(path: str, key: object) -> str:
    """Return the place of `key` in the object at `path`: ``"mcpServers.docs"``, ``'mcpServers["my docs"]'``."""
    if isinstance(key, int):
        return f"{path}[{shown(key)}]"
    if isinstance(key, str) and _PLAIN.fullmatch(key):
        return f"{path}.{key}" if path else key
    return f"{path}[{shown_key(key)}]"


def shown_key(key: object) -> str:
    """Return a key for a message: a str in ASCII and shortened, anything else by its type."""
    if not isinstance(key, str):
        return f"<{a_type(key)}>"
    # The text after "=" or ":" may be a credential that was written where only its name belongs.
    name = re.split(r"[=:]\s*", key, maxsplit=1)[0]
    text = json.dumps(name[:_SHOWN_OF_KEY])
    return text if name[:_SHOWN_OF_KEY] == key else f"{text[:-1]}…{text[-1]}"


def found(value: object) -> str:
    """Describe a value without showing it: ``"a str of 12 characters"``, ``"an int"``."""
    if isinstance(value, str):
        return f"a str of {len(value)} character{'s' if len(value) > 1 else ''}" if value else "an empty str"
    return a_type(value)


def nearest(word: object, choices: Iterable[str]) -> str | None:
    """Return the choice that `word` nearly is; None if there is none."""
    if not isinstance(word, str):
        return None
    by_lower = {choice.lower(): choice for choice in choices}
    near = difflib.get_close_matches(word.lower()[:64], by_lower, n=1, cutoff=0.75)
    return by_lower[near[0]] if near else None


def did_you_mean(word: object, choices: Iterable[str]) -> str:
    """Return ``" (did you mean 'url'?)"`` if `word` is nearly one of `choices`, else nothing."""
    near = nearest(word, choices)
    return "" if near is None else f" (did you mean {near!r}?)"


def bad(source: str, path: str, problem: str) -> ConfigError:
    """Return the error for a place in a configuration."""
    where = f"{source}: {path}" if path else source
    return ConfigError(f"{where}: {problem}", source=source, path=path or None)


def repeated(source: str, path: str, keys: tuple[str, ...]) -> ConfigError:
    """Return the error for keys that appear more than once."""
    return bad(source, path, f"{', '.join(map(shown_key, keys))} appears more than once; remove all but one")
