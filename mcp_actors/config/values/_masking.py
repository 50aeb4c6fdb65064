"""Mask the credentials in a URL or a command line.

The masked form stays recognizable. It is for people only: nothing connects with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, Self
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
    return tuple(each.shown + _masked(each) for each in _parted(args))


def hidden_args(args: Iterable[str]) -> Iterator[HiddenArg]:
    """Yield what `mask_args` hides. Of a URL, only its credentials are hidden, so it is marked as one."""
    for index, each in enumerate(_parted(args)):
        if each.hidden:
            yield HiddenArg(index, each.hidden.strip(), each.is_url)
            inner = _part(each.hidden)  # the token of "Authorization: Bearer …"
            if inner.shown and inner.hidden:
                yield HiddenArg(index, inner.hidden.strip(), inner.is_url)
            if each.is_url and mask_url(each.hidden).startswith(f"{MASK}@"):  # malformed, so nothing finds its parts
                user_info = each.hidden.partition("://")[2].rpartition("@")[0]
                yield HiddenArg(index, user_info, is_url=False)
                yield HiddenArg(index, user_info.partition(":")[2], is_url=False)


class HiddenArg(NamedTuple):
    """A text that must not be shown.

    Attributes:
        place: the index of the argument that it is in.
        text: the text.
        is_url: whether only its credentials are hidden.
    """

    place: int
    text: str
    is_url: bool


def literal_secrets(url: str) -> list[str]:
    """Return the parts of a URL, other than its user-info, that may be credentials and are not variables."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return []
    found = []
    for name, equals, value in (pair.partition("=") for pair in parts.query.split("&")):
        if equals and value and "${" not in value and _SECRET_NAME.search(name):
            found.append(f"its parameter {name!r}")
        elif name and not equals and "${" not in name:
            found.append("its query")  # without a name: it may be a value
    if parts.fragment and "${" not in parts.fragment:
        found.append("its fragment")
    return found


class _Parted(NamedTuple):
    """An argument in two parts, of which the second is hidden as a whole, or is a URL."""

    shown: str
    hidden: str | None = None
    is_url: bool = False


def _parted(args: Iterable[str]) -> Iterator[_Parted]:
    value_follows = False
    for arg in args:
        is_option = arg.startswith("-")
        yield _Parted("", arg) if value_follows and not is_option else _part(arg)
        value_follows = is_option and "=" not in arg and _SECRET_NAME.search(arg) is not None


def _masked(parted: _Parted) -> str:
    if parted.hidden is None:
        return ""
    return mask_url(parted.hidden) if parted.is_url else MASK


def _part(arg: str) -> _Parted:
    begin, pair = 0, _NAME_AND_VALUE.fullmatch(arg)
    if pair and arg.startswith("-") and pair["separator"] == "=" and not _SECRET_NAME.search(pair["name"]):
        # The value of such an option may be a name and a value too: "--env=API_KEY=…".
        begin = pair.end("separator")
        pair = _NAME_AND_VALUE.fullmatch(arg[begin:])
    if pair and _SECRET_NAME.search(pair["name"]):
        at = begin + pair.end("separator")
        return _Parted(arg[:at], arg[at:])
    url = _URL.search(arg)
    return _Parted(arg[: url.start("url")], arg[url.start("url") :], is_url=True) if url else _Parted(arg)


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
