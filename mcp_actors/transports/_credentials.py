"""Resolve, renew and mask the credentials of one connection.

A server may repeat a credential, perhaps encoded for a URL, JSON or HTML. So a server's text is masked before it gets
into an error, an event or a log; results of calls are not masked. After a 401, `Renewal` resolves credentials anew.

Owns: resolved credentials of the connection.
Writes: masked exceptions; masked errors of servers; headers of the next requests. Drops unread bodies of 401 responses.
Calls: config.
"""

from __future__ import annotations

import html
import json
import math
import os
import re
import traceback
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from itertools import chain
from operator import is_
from typing import TYPE_CHECKING, Any, Final, TypeGuard, TypeVar
from urllib.parse import quote, quote_plus

import httpx2
import trio
from attrs import define, field
from mcp import MCPError
from mcp.types import ErrorData, JSONRPCError, JSONRPCMessage
from pydantic_core import ValidationError

from .._errors import ConfigError, ConnectFailed, McpActorsError
from .._json import UnparsedText
from .._text import HIDDEN, indented, one_line, plain_text
from ..config import OAuth, is_auth_flow, resolve_headers, resolve_token
from ..config._template import secrets_in, written_at
from ..config._values import MASK

if TYPE_CHECKING:
    from ..config import ConfigValue, Http, ServerConfig, Sse


# --- Mask the credentials of a connection in text from its server -----------------------------------------------------

# A 401 may quote the token, and a failing process may print its environment.


MIN_LENGTH: Final = 8
"""Minimum length of a masked value. To mask shorter values, such as "true" or "8080", would spoil texts."""

RECENT_VALUES: Final = 10
"""Recent values masked under one name: eight tokens of four refreshes, and two forms of the client's secret."""

MAX_ERROR_MESSAGE: Final = 64 * 1024
"""Kept characters of a server's error message. Cleaning longer ones may take seconds."""

PATTERNS: Final = 100
"""Maximum of kept patterns. Each is for one set of values found in a text."""

_PYDANTIC_INPUT: Final = re.compile(r"input_value=.*(?=, input_type=)")
"""The input in an error of pydantic, which cuts the middle out: the masker would not recognize a credential."""

_EXPECTED: Final = (McpActorsError, MCPError, OSError, httpx2.HTTPError, BaseExceptionGroup)

E = TypeVar("E", bound=BaseException)


class Masked(Exception):
    """Replaces an exception whose text has a credential or the input of a server, and cannot be changed."""


class _Cleaned(dict[int, tuple[BaseException, BaseException]]):
    """Cleaned errors and their replacements, by `id`. No other object gets the `id` of a kept error."""

    def of(self, error: Any) -> Any:
        return self.get(id(error), (error, error))[1]

    def inside_of(self, group: BaseExceptionGroup[Any]) -> BaseExceptionGroup[Any]:
        inside = [self.of(each) for each in group.exceptions]
        if all(map(is_, inside, group.exceptions)):
            return group
        other = group.derive(inside)
        other.__cause__, other.__context__ = group.__cause__, group.__context__
        other.__suppress_context__ = group.__suppress_context__
        for note in getattr(group, "__notes__", ()):
            other.add_note(note)
        return other


class Masker:
    """Replaces credentials of a connection, in any letter case and usual encoding, by their names.

    Args:
        harmless: values to leave unmasked.

    Attributes:
        server: the name of the server, for foreign log lines; empty without a server.
        longest: the length of the longest encoded value.
    """

    def __init__(self, harmless: Iterable[str] = (), *, server: str = "") -> None:
        self.server = server
        self._harmless = frozenset(harmless)
        self._names: dict[str, str] = {}  # by folded form: lower() depends on neighbours, as in "Σ"
        # Folded form → texts for a pattern, which compares letter by letter: "İ" folds to two letters.
        self._written: dict[str, set[str]] = {}
        self._patterns: dict[tuple[str, ...], re.Pattern[str]] = {}
        self._recent: dict[str, list[str]] = {}
        self._uses: Counter[str] = Counter()  # how often each form occurs in added values
        self.longest: int = 0

    def add(self, name: str, value: str, *, own_url: bool = False) -> None:
        """Replace a value, and its secret parts (`secrets_in`), by `name` from now on."""
        for form in self._forms_of(value, own_url=own_url):
            self._names.setdefault(form.casefold(), name)
            self._written.setdefault(form.casefold(), set()).update((form, form.casefold()))
            self._uses[form.casefold()] += 1
        self._changed()

    def add_recent(self, name: str, value: str) -> None:
        """Replace a value by `name`, until `RECENT_VALUES` newer values of this name have followed.

        A connection may live for months with many tokens, and each value slows masking down.
        """
        recent = self._recent.setdefault(name, [])
        if value in recent:
            recent.remove(value)  # now the latest: the secret of a client outlives all its tokens
        else:
            self.add(name, value)
        recent.append(value)
        if len(recent) > RECENT_VALUES:
            self._forget(recent.pop(0))

    def _forget(self, value: str) -> None:
        for form in map(str.casefold, self._forms_of(value)):
            self._uses[form] -= 1
            if not self._uses[form]:  # else it is also in another value, as a token is in a header
                del self._names[form], self._written[form], self._uses[form]
        self._changed()

    def _forms_of(self, value: str, *, own_url: bool = False) -> Iterator[str]:
        for secret in secrets_in(value, own_url=own_url):
            if len(secret) >= MIN_LENGTH and secret not in self._harmless:
                yield from _forms(secret)

    def _changed(self) -> None:
        self.longest = max(map(len, chain.from_iterable(self._written.values())), default=0)
        self._patterns.clear()

    def __call__(self, text: str) -> str:
        """Return `text` with every known value masked, in linear time.

        This includes values interrupted by escape sequences or characters without a width, which `plain_text` drops,
        and the beginning of a value before a ``…``.
        """
        forms = self._forms_in(text)
        masked = self._matcher(forms).sub(self._name_of, text) if forms else text
        if masked.isprintable() and masked.isascii():
            return masked
        return self._masked_as_shown(self._masked_if_cut(masked))

    def _masked_if_cut(self, text: str) -> str:
        if "…" not in text:
            return text
        folded = text.casefold()
        seen = folded if len(folded) == len(text) else text  # an index must mean the same place in `text`
        found = []
        for written, name in ((each, name) for form, name in self._names.items() for each in self._written[form]):
            place = seen.find(written[:MIN_LENGTH])
            while place >= 0:
                end = seen.find("…", place + MIN_LENGTH, place + len(written))
                if end >= 0 and written.startswith(seen[place:end]):
                    found.append((place, end, name))
                place = seen.find(written[:MIN_LENGTH], place + 1)
        pieces, done = [], 0
        for place, end, name in sorted(found):
            if place >= done:
                pieces += [text[done:place], name]
                done = end
        return "".join([*pieces, text[done:]])

    def _name_of(self, found: re.Match[str]) -> str:
        return self._names.get(found[0].casefold(), MASK)

    def _masked_as_shown(self, text: str) -> str:
        shown = one_line(text)
        if not (forms := self._forms_in(shown)):
            return text
        # The places where each run of shown characters begins: in `shown`, and in `text`.
        begins, places, at = [0], [0], 0
        for hidden in HIDDEN.finditer(text):
            at += len(hidden[0])
            begins.append(hidden.end() - at)
            places.append(hidden.end())
        pieces, done = [], 0
        for found in self._matcher(forms).finditer(shown):
            first, last = (bisect_right(begins, place) - 1 for place in (found.start(), found.end() - 1))
            pieces += [text[done : found.start() - begins[first] + places[first]], self._name_of(found)]
            done = found.end() - begins[last] + places[last]
        return "".join([*pieces, text[done:]])

    def shown(self, words: object) -> str:
        return self(_PYDANTIC_INPUT.sub("input_value=…", str(words)))

    def _forms_in(self, text: str) -> tuple[str, ...]:
        # A search for each form is a hundred times as fast as the pattern, and most texts have no credential.
        folded = text.casefold()
        return tuple(form for form in self._names if form in folded)

    def _matcher(self, forms: tuple[str, ...]) -> re.Pattern[str]:
        # Compile these forms alone, which takes 10 µs a character. Tokens may have any length.
        if (pattern := self._patterns.get(forms)) is None:
            if len(self._patterns) == PATTERNS:
                self._patterns.clear()
            written = chain.from_iterable(self._written[form] for form in forms)
            longest_first = sorted(written, key=len, reverse=True)
            pattern = re.compile("|".join(map(re.escape, longest_first)), re.IGNORECASE)
            self._patterns[forms] = pattern
        return pattern

    def place_to_cut(self, text: str, at: int) -> int:
        """Return the last position up to `at` where a cut splits no value."""
        begin, end = max(at - self.longest, 0), at + self.longest
        if forms := self._forms_in(text[begin:end]):
            for found in self._matcher(forms).finditer(text, begin, end):
                if found.start() < at < found.end():
                    return found.start()
        return at

    def data(self, value: Any) -> Any:
        """Return JSON-like data with every string masked; the given object if nothing was masked.

        Data nested too deeply, or in themselves, become a short text.
        """
        try:
            return self._data(value)
        except RecursionError:
            return "nested too deeply to be masked"

    def _data(self, value: Any) -> Any:
        if isinstance(value, str):
            return self(value)
        # Compare by identity: ``==`` at each level would look at everything inside again.
        if isinstance(value, Mapping):
            members = [(self._data(key), self._data(each)) for key, each in value.items()]
            same = all(map(is_, chain(*members), chain(*value.items())))
            return value if same else dict(members)
        if isinstance(value, (list, tuple)):
            items = [self._data(each) for each in value]
            return value if all(map(is_, items, value)) else items
        return value

    def mask_error(self, message: JSONRPCMessage) -> None:
        """Mask an error in a message before the session writes the text into a span."""
        if isinstance(message, JSONRPCError):
            message.error.message = _plain(self(self._cut(message.error.message)))
            message.error.data = self.data(message.error.data)

    def clean(self, error: E) -> E | Masked:
        """Strip an exception and its causes of credentials, so that it can be kept.

        Frames are dropped, because locals hold resolved values. An `UnparsedText` loses the unparsed text. The message
        of an `mcp.MCPError` also becomes plain text, because programs show the message to people and models.

        Returns:
            The exception itself, or a `Masked` if its text cannot be changed.
        """
        cleaned = _Cleaned()
        begun: set[int] = set()
        pending: list[BaseException] = [error]
        while pending:  # inner errors first; no recursion, because chains may be long
            each = pending[-1]
            if id(each) not in begun:
                begun.add(id(each))
                pending += [inner for inner in _inside(each) if id(inner) not in begun]
            elif id(pending.pop()) not in cleaned:
                cleaned[id(each)] = each, self._clean(each, cleaned)
        found: E | Masked = cleaned.of(error)
        return found

    def _clean(self, error: BaseException, cleaned: _Cleaned) -> BaseException:
        # The text of our errors was masked when made. Masked again, our own words might be taken for a value.
        ours = isinstance(error, McpActorsError)
        if not ours:
            _note_origin(error)
        error.__traceback__ = None
        if error.__cause__ is not None:
            error.__cause__ = cleaned.of(error.__cause__)
        elif error.__context__ is not None:
            error.__context__ = cleaned.of(error.__context__)
        if isinstance(error, BaseExceptionGroup):
            error = cleaned.inside_of(error)
        return error if ours else self._masked(error)

    def _cut(self, message: str) -> str:
        if len(message) <= MAX_ERROR_MESSAGE:
            return message
        return f"{message[: self.place_to_cut(message, MAX_ERROR_MESSAGE)]}…"

    def _masked(self, error: E) -> E | Masked:
        if isinstance(error, ValidationError):
            return self._replaced(error, self(first_of(error)))  # the whole text repeats the input for each error
        if isinstance(error, MCPError):
            code, message, data = error.args
            error.args = code, self._cut(message), str(data) if isinstance(data, UnparsedText) else data
        error.args = tuple(self.data(each) for each in error.args)
        for name, value in vars(error).items():
            vars(error)[name] = None if isinstance(value, httpx2.Request | httpx2.Response) else self.data(value)
        if isinstance(error, MCPError):
            code, message, data = error.args
            error.args = code, message, data = code, _plain(message), data
            error.error = ErrorData(code=code, message=message, data=data)
        text = self.shown(error)
        if text == str(error):
            return error
        return self._replaced(error, text)

    def _replaced(self, error: BaseException, text: str) -> Masked:
        masked = Masked(f"{type(error).__name__}: {text}")
        masked.__cause__ = error.__cause__
        return masked


def _plain(message: str) -> str:
    return indented(plain_text(message, limit=len(message), lines=True))


def first_of(error: ValidationError) -> str:
    """Return the first of the errors, without the input."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"])) or "top level"
    return plain_text(f"{error.error_count()} for {error.title}, first at {where}: {first['msg']}")


def _inside(error: BaseException) -> Iterable[BaseException]:
    errors = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    before = error.__cause__ or error.__context__
    return errors if before is None else (*errors, before)


def _note_origin(error: BaseException) -> None:
    if error.__traceback__ is None or isinstance(error, _EXPECTED):
        return
    *_, last = traceback.extract_tb(error.__traceback__)
    error.add_note(f"raised in {last.name} ({last.filename}:{last.lineno})")


def _forms(secret: str) -> Iterable[str]:
    """Return the forms of a value: plain, shown in one line, and encoded for URLs, JSON, Python or HTML."""
    writable = secret.encode(errors="replace").decode()
    return (
        secret,
        one_line(secret) if len(one_line(secret)) >= MIN_LENGTH else secret,
        quote(writable, safe=""),
        quote(writable),
        quote_plus(writable),
        json.dumps(secret)[1:-1],
        json.dumps(secret)[1:-1].replace("/", r"\/"),  # as PHP writes it
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        html.escape(secret),
    )


# --- Resolve credentials at every connect, and renew those that expire in mid-session ---------------------------------

# After a 401, one resolution serves all refused requests. Refused requests were not carried out, so each is sent once
# more.


Resolved = TypeVar("Resolved")

VARIABLE_START: Final = re.compile(r"\$\{\w+")


async def resolve_credentials(
    resolver: Callable[..., Awaitable[Resolved]], configured: object, config: ServerConfig, field: str
) -> Resolved:
    """Resolve one field (``"env"``, ``"headers"``, ``"auth"``) against the current environment.

    **Cancellation:** waits only inside an async function of the user, and leaves nothing behind.

    Raises:
        ConnectFailed: a value cannot be resolved. Hopeless, unless a function of the user raised.
    """
    try:
        return await resolver(configured, os.environ, where=f"{written_at(config)}.{field}")
    except ConfigError as error:
        said, hopeless = f"server {config.name!r}: {error}", error.__cause__ is None
        raise ConnectFailed(said, server=config.name, phase="configure", hopeless=hopeless) from error


def named_credentials(transport: Http | Sse) -> str:
    """Return the sources of the credentials, without any value; empty without credentials."""
    named = []
    if transport.auth is not None:
        named.append(f"auth{_source(transport.auth)}" if _is_token(transport.auth) else "auth")
    if httpx2.URL(transport.url).userinfo:
        named.append("the user in url")
    return ", ".join([*named, *(f"header {name}{_source(value)}" for name, value in transport.headers.items())])


def _is_token(auth: ConfigValue | OAuth | httpx2.Auth | None) -> TypeGuard[ConfigValue]:
    return auth is not None and not isinstance(auth, OAuth) and not is_auth_flow(auth)


def _source(value: object) -> str:
    if callable(value):
        return " (a function)"
    names = VARIABLE_START.findall(value) if isinstance(value, str) else []
    return f" ({', '.join(f'{name}}}' for name in names)})" if names else ""


@define(eq=False)
class Credentials:
    """The credentials of one server. The `masker` gets every resolved value."""

    config: ServerConfig
    transport: Http | Sse
    masker: Masker

    @property
    def renewable(self) -> bool:
        """True if another resolution may return new values."""
        auth, headers = self.transport.auth, self.transport.headers.values()
        return (auth is None or _is_token(auth)) and any(map(_source, (auth, *headers)))

    async def resolve(self) -> dict[str, str]:
        """Resolve the headers to send.

        Raises:
            ConnectFailed: a value cannot be resolved.
        """
        auth = self.transport.auth
        headers = await resolve_credentials(resolve_headers, self.transport.headers, self.config, "headers")
        for name, value in headers.items():
            self.masker.add_recent(f"<headers.{name}>", value)
        if _is_token(auth):
            token = await resolve_credentials(resolve_token, auth, self.config, "auth")
            self.masker.add_recent("<auth>", token)
            headers["Authorization"] = f"Bearer {token}"
        return headers


@define(eq=False)
class Renewal(httpx2.Auth):
    """Sends a refused request once more with new credentials.

    Attributes:
        headers: the current headers.
    """

    client: httpx2.AsyncClient
    credentials: Credentials
    headers: dict[str, str]
    _renewed: dict[str, str] = field(factory=dict, init=False)
    _accepted: bool = field(default=False, init=False)
    _turn: trio.Lock = field(factory=trio.Lock, init=False)

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        # `sent` identifies the credentials of this request. Another request may renew them before the response arrives.
        # Then `_renew` sees the change and resolves nothing: otherwise each of many refused requests would ask the
        # user.
        sent = self.headers
        request.headers.update(self._renewed)  # the request may be older than the last renewal
        response = yield request
        if response.status_code != HTTPStatus.UNAUTHORIZED:
            self._accepted = self._accepted or sent is self.headers
        elif await self._renew(sent):
            # Replace the body of the refusal, or httpx2 would read all of it, however long, before the second request.
            await response.stream.aclose()  # type: ignore[union-attr]  # an AsyncClient's are async
            response.stream = httpx2.ByteStream(b"")
            request.headers.update(self._renewed)
            response = yield request
            self._accepted = self._accepted or response.status_code != HTTPStatus.UNAUTHORIZED

    async def _renew(self, refused: dict[str, str]) -> bool:
        """Resolve headers if `refused` are current and were accepted before. Return True if others are current.

        If credentials that were never accepted were resolved again, a function of the user could ask a person for a
        password at each refusal.
        """
        async with self._turn:
            if self.headers is refused and self._accepted:
                headers = refused  # stay if the resolution fails: the reconnect fails with the reason
                # A resolution may outlive its request, and every other refused request waits for it, hence the bound.
                with suppress(ConnectFailed), trio.move_on_after(self.credentials.config.connect_timeout or math.inf):
                    headers = await self.credentials.resolve()
                # Only after the checkpoints above: a caller that is cancelled there has proved nothing.
                self._accepted = False
                if headers != refused:
                    self._renewed |= {name: value for name, value in headers.items() if value != refused[name]}
                    self.headers = headers
                    self.client.headers.update(headers)
        return self.headers is not refused
