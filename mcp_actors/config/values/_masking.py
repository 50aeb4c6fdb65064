"""Mask the credentials in a URL or a command line.

The masked form stays recognizable. It is for people only: nothing connects with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Self
from urllib.parse import SplitResult, urlsplit

MASK: Final = "…"

# Names of options and variables whose value is masked. Masking too much is harmless, masking too little is not.
_SECRET_NAME: Final = re.compile(
    r"token|secret|passw|pwd|credential|auth|bearer|cookie|session|signature|header|dsn|jwt"
    r"|(api|access|private|account|license)[-_.]?key|(^|[-_.])(key|pat|pass|h)$|connection[-_]?string",
    re.IGNORECASE,
)
_NAME_AND_VALUE: Final = re.compile(r"(?P<name>-{0,2}[A-Za-z_][\w.-]*)(?P<separator>[=:])(?!//).+", re.DOTALL)
_END_OF_PATH: Final = re.compile(r"[?#]")
_URL: Final = re.compile(r"(?<![A-Za-z0-9+.-])[0-9+.-]*+(?P<url>[A-Za-z][A-Za-z0-9+.-]*+://)")
"""A scheme counts only at the start of a word; trying every letter of a long word would take quadratic time."""


class ExpandedUrl(str):
    """A URL with expanded variables, which may be credentials; `written` is the URL before that."""

    written: str

    def __new__(cls, url: str, *, written: str) -> Self:
        """Make one from the expanded URL and the written one."""
        made = super().__new__(cls, url)
        made.written = written
        return made


def mask_url(url: str) -> str:
    """Return `url` without user-info and fragment, with every query value masked and variables as they were written.

    All query values are masked, because a list of secret-looking names is never complete. A malformed URL loses
    everything up to its last ``@`` and everything from its first ``?`` or ``#`` on.
    """
    if isinstance(url, ExpandedUrl):
        url = url.written
    try:
        parts = urlsplit(url)
    except ValueError:
        return _mask_malformed(url)
    if not parts.scheme or not parts.netloc or _may_split_password(parts):
        return _mask_malformed(url)
    host = parts.netloc.rpartition("@")[2]
    query = "&".join(_mask_pair(pair) for pair in parts.query.split("&")) if parts.query else ""
    return f"{parts.scheme}://{host}{parts.path}" + (f"?{query}" if query else "")


def mask_args(args: Iterable[str]) -> tuple[str, ...]:
    """Return command-line arguments with the values of secret-looking options, variables and URLs masked."""
    masked: list[str] = []
    value_follows = False
    for arg in args:
        is_option = arg.startswith("-")
        masked.append(MASK if value_follows and not is_option else _mask_arg(arg))
        value_follows = is_option and "=" not in arg and _SECRET_NAME.search(arg) is not None
    return tuple(masked)


def secret_parameters(url: str) -> list[str]:
    """Return the names of the query parameters of a URL that look like credentials and are not variables."""
    try:
        pairs = urlsplit(url).query.split("&")
    except ValueError:
        return []
    named = [pair.partition("=") for pair in pairs]
    return [name for name, _, value in named if value and "${" not in value and _SECRET_NAME.search(name)]


def _mask_arg(arg: str) -> str:
    pair = _NAME_AND_VALUE.fullmatch(arg)
    if pair and _SECRET_NAME.search(pair["name"]):
        return f"{pair['name']}{pair['separator']}{MASK}"
    url = _URL.search(arg)
    return arg[: url.start("url")] + mask_url(arg[url.start("url") :]) if url else arg


def _mask_pair(pair: str) -> str:
    # A pair without "=" may be a value as well as a name.
    name, equals, _ = pair.partition("=")
    return f"{name}={MASK}" if equals else MASK


def _may_split_password(parts: SplitResult) -> bool:
    """Return whether an unescaped ``/``, ``?`` or ``#`` in a password may have split ``user:password@``."""
    before, _, host = parts.netloc.rpartition("@")
    after_host = host.rpartition("]")[2]
    _, colon, port = after_host.rpartition(":")
    if not colon or "${" in after_host:
        return False
    if "@" in parts.path + parts.fragment and not before:
        return True
    return "@" in parts.path + parts.fragment + parts.query and not port.isdecimal()


def _mask_malformed(text: str) -> str:
    _, at, rest = text.rpartition("@")
    shown, *hidden = _END_OF_PATH.split(rest, maxsplit=1)
    return (f"{MASK}@" if at else "") + shown + (f"?{MASK}" if hidden else "")
