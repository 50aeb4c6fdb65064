"""Handle values that may be credentials: expand, mask, hold, resolve.

Masking must hide secrets, but keep a URL or command line recognizable.

Owns: nothing.
Writes: nothing. Calls functions that the user gave as values.
Calls: _validators.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, NoReturn, Self, TypeAlias, final
from urllib.parse import SplitResult, urlsplit

import attrs

from .._errors import ConfigError
from .._foreign import answer_of
from .._misuse import explained, is_function, nearest
from .._pickling import Frozen
from .._user_files import SHORTEST_SECRET as SHORTEST_SECRET, secret_problem as secret_problem
from ._validators import a_type, refused, refused_type

# --- Variables --------------------------------------------------------------------------------------------------------


MAX_DEFAULT_DEPTH: Final = 16
"""Maximum nesting of defaults (``${A:-${B:-…}}``). Deep nesting could exhaust the stack."""

MAX_EXPANDED: Final = 1024 * 1024
"""Maximum characters of an expanded string."""

MAX_REFERENCES: Final = 1000
"""References in one string, including defaults; parsing a million takes half a minute."""

_REFERENCE: Final = re.compile(r"\$?\$\{")
_BRACE: Final = re.compile(r"\$\{|\}")
_VARIABLE: Final = re.compile(r"(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)
FROM_FILE: Final = "env:"
"""``Written.variables["env:VAR"]`` is VAR from a ``.env`` file, used if the environment has no VAR."""

INPUT: Final = re.compile(r"input:(?P<id>[\w.-]{1,64})")
_EDITOR_REFERENCE: Final = re.compile(r"(?:command|config):[\w.-]{1,64}")


@attrs.frozen
class Reference:
    """A ``${…}``: `text` is everything between the braces, `default` the parsed rest after ``:-``, or None."""

    text: str
    name: str
    default: tuple[Part, ...] | None = None


Part: TypeAlias = str | Reference


@final
class Written(str):
    """A text with references from a file; `variables` are values known only from the file.

    Used in a transport where a str would be taken literally. Equal texts with different variables differ.
    """

    variables: Mapping[str, str]

    def __new__(cls, text: str, variables: Mapping[str, str] = Frozen({})) -> Self:
        made = super().__new__(cls, text)
        made.variables = variables
        return made

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, str) and str(self) == str(other)
        return same and self.variables == getattr(other, "variables", self.variables)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return super().__hash__()


def variables_in(text: str) -> Mapping[str, str]:
    """Return the `Written.variables` of a text, if any."""
    return text.variables if isinstance(text, Written) else {}


def expand(
    text: str, environ: Mapping[str, str], *, where: str, variables: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Replace the references in `text` with their values.

    ============================ =====================================================================
    ``${VAR}``, ``${env:VAR}``   an environment variable, which must be set but may be empty
    ``${VAR:-default}``          the default if unset or empty, as in a shell; may contain references
    ``$${``                      a literal ``${``; any other ``$`` is literal too
    ============================ =====================================================================

    Values are not expanded again, so there are no cycles.

    Args:
        text: the string as configured.
        environ: the environment variables, usually ``os.environ``.
        where: the place in the configuration, for the message; for example ``"servers.docs.env.TOKEN"``.
        variables: more values, by the text between the braces. They take precedence over environment variables, except
            for names that begin with ``env:``.

    Raises:
        ConfigError: a variable is not set and has no default, a reference is malformed, or the result is too long. The
            message names the variable and `where`, and shows nothing else of the string.
    """
    expanded = "".join(_values(parse(text, where=where, variables=variables), environ, variables, where))
    if len(expanded) > MAX_EXPANDED:
        problem = f"the string is longer than {MAX_EXPANDED} characters after its variables are expanded"
        raise _bad(where, f"{problem}; shorten it")
    return expanded


def parse(text: str, *, where: str, variables: Container[str] = ()) -> tuple[Part, ...]:
    """Split `text` into literal pieces and references; `variables` are further valid names between the braces.

    Raises:
        ConfigError: a reference is malformed, or there are too many.
    """
    if text.count("${") > MAX_REFERENCES:
        raise _bad(where, f"there are more than {MAX_REFERENCES} variables ${{…}} in one string; use fewer")
    return tuple(_parts(text, where, variables, 0))


def literal(text: str) -> str:
    """Return a string that expands to `text`."""
    return text.replace("${", "$${")


def references(parts: tuple[Part, ...]) -> Iterator[Reference]:
    """Yield every reference in a parsed string, including references in defaults."""
    for part in parts:
        if isinstance(part, Reference):
            yield part
            yield from references(part.default or ())


# --- parsing --------------------------------------------------------------------------------------------------------


def _parts(text: str, where: str, variables: Container[str], depth: int) -> Iterator[Part]:
    if depth > MAX_DEFAULT_DEPTH:
        raise _bad(
            where, f"defaults are nested more than {MAX_DEFAULT_DEPTH} deep; write fewer ${{…}} inside each other"
        )
    at = 0
    while reference := _REFERENCE.search(text, at):
        yield text[at : reference.start()]
        if reference[0] == "$${":
            yield "${"
            at = reference.end()
        else:
            end = _closing_brace(text, reference.end(), where)
            yield _reference(text[reference.end() : end], where, variables, depth)
            at = end + 1
    yield text[at:]


def _closing_brace(text: str, start: int, where: str) -> int:
    depth = 1
    for brace in _BRACE.finditer(text, start):
        depth += 1 if brace[0] == "${" else -1
        if depth == 0:
            return brace.start()
    raise _bad(where, "a '${' has no closing '}'; add it, or write '$${' for the two characters")


def _reference(inside: str, where: str, variables: Container[str], depth: int) -> Reference:
    if INPUT.fullmatch(inside) or (inside in variables and not inside.startswith(FROM_FILE)):
        return Reference(inside, inside)
    if _EDITOR_REFERENCE.fullmatch(inside):
        kind = inside.partition(":")[0].replace("config", "setting")
        raise _bad(where, f"'${{{inside}}}' is a {kind} of VS Code, which is not known here; write the value itself")
    variable = _VARIABLE.fullmatch(inside)
    if variable is None:
        # Do not show the content: perhaps a password happens to contain these two characters.
        remedy = "write ${VAR}, ${env:VAR} or ${VAR:-default}, or '$${' for the two characters"
        raise _bad(where, f"a '${{…}}' does not contain a variable; {remedy}")
    default = variable["default"]
    parsed = None if default is None else tuple(_parts(default, where, variables, depth + 1))
    return Reference(inside, variable["name"], parsed)


# --- expanding ------------------------------------------------------------------------------------------------------


def _values(
    parts: tuple[Part, ...], environ: Mapping[str, str], variables: Mapping[str, str], where: str
) -> Iterator[str]:
    length = 0
    for part in parts:
        value = part if isinstance(part, str) else _look_up(part, environ, variables, where)
        length += len(value)
        yield value
        if length > MAX_EXPANDED:
            return  # before long values fill the memory; the caller refuses the length so far


def _look_up(reference: Reference, environ: Mapping[str, str], variables: Mapping[str, str], where: str) -> str:
    if reference.text in variables and not reference.text.startswith(FROM_FILE):
        return variables[reference.text]
    if asked := INPUT.fullmatch(reference.text):
        remedy = "inputs are for files; read them with load_config(…, ask=…)"
        raise _bad(where, f"input {asked['id']!r} has no value; {remedy}")
    value = environ.get(reference.name)
    if value is None:
        value = variables.get(f"{FROM_FILE}{reference.name}")
    if reference.default is not None and not value:
        return "".join(_values(reference.default, environ, variables, where))
    if value is None:
        name = reference.name
        # The name comes first, because a terminal or a log cuts off the rest.
        problem = f"environment variable {name!r} is not set ({where})"
        remedy = f"set it, or give a default: ${{{name}:-default}}"
        if re.search("[a-z][A-Z]", name) and (
            near := nearest(name, (each for each in variables if not each.startswith(FROM_FILE)))
        ):
            remedy = f"did you mean ${{{near[0]}}}?"
        raise ConfigError(f"{problem}; {remedy}", path=where)
    return value


def _bad(where: str, problem: str) -> ConfigError:
    return ConfigError(problem, owner=where, path=where)


# --- Mask credentials -------------------------------------------------------------------------------------------------

# `mcp_actors.servers` hashes masked arguments and URLs to recognize a server in a later run: a change of the masking
# changes the hash.


MASK: Final = "…"

# Names of options and variables whose value is masked. Masking too much is harmless, masking too little is not.
_SECRET_NAME: Final = re.compile(
    r"token|secret|passw|pwd|credential|auth|bearer|cookie|session|signature|header|dsn|jwt"
    r"|(api|access|private|account|license)[-_.]?key|(^|[-_.])(key|pat|pass|h)$|connection[-_]?string",
    re.IGNORECASE,
)
_NAME_AND_VALUE: Final = re.compile(r"(?P<name>-{0,2}[A-Za-z_][\w.-]*)(?P<separator>[=:])(?!//).+", re.DOTALL)
_EMBEDDED_URL: Final = re.compile(r"(?<![A-Za-z0-9+.-])[0-9+.-]*+(?P<url>[A-Za-z][A-Za-z0-9+.-]*+://)")
"""A scheme counts only at the start of a word; trying every letter of a long word would take quadratic time."""


class ExpandedUrl(str):
    """A URL with expanded variables, which may be credentials; `written` is the URL before."""

    written: str

    def __new__(cls, url: str, *, written: str) -> Self:
        made = super().__new__(cls, url)
        made.written = written
        return made


def mask_url(url: str) -> str:
    """Return `url` without user-info and fragment, all query values masked and variables as written.

    All query values, because no list of secret-looking names is complete. A malformed URL loses everything up to the
    last ``@``, and from the first ``?`` or ``#`` on.
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
    """Yield what `mask_args` hides."""
    for index, each in enumerate(_parted(args)):
        if each.hidden:
            yield HiddenArg(index, each.hidden.strip(), each.is_url)
            inner = _part(each.hidden)  # the token of "Authorization: Bearer …"
            if inner.shown and inner.hidden:
                yield HiddenArg(index, inner.hidden.strip(), inner.is_url)
            if each.is_url and mask_url(each.hidden).startswith(f"{MASK}@"):  # malformed: nothing else finds this
                user_info = each.hidden.partition("://")[2].rpartition("@")[0]
                yield HiddenArg(index, user_info, is_url=False)
                yield HiddenArg(index, user_info.partition(":")[2], is_url=False)


class HiddenArg(NamedTuple):
    """A text in the argument at `place` that must not be shown; of a URL, only its credentials are hidden."""

    place: int
    text: str
    is_url: bool


def literal_secrets(url: str) -> list[str]:
    """Return the parts of a URL, except user-info, that may be credentials and are not variables."""
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
    """An argument in two parts; the second is hidden as a whole, or is a URL."""

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
    url = _EMBEDDED_URL.search(arg)
    return _Parted(arg[: url.start("url")], arg[url.start("url") :], is_url=True) if url else _Parted(arg)


def _mask_pair(pair: str) -> str:
    # A pair without "=" may be a value as well as a name.
    name, equals, _ = pair.partition("=")
    return f"{name}={MASK}" if equals else MASK


def _may_split_password(parts: SplitResult) -> bool:
    """Return whether a bare ``/``, ``?`` or ``#`` in a password may have split ``user:password@``."""
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
    shown, *hidden = re.split("[?#]", rest, maxsplit=1)
    return (f"{MASK}@" if at else "") + shown + (f"?{MASK}" if hidden else "")


# --- Values -----------------------------------------------------------------------------------------------------------


@explained
@final
class Secret:
    """Hides a str: ``repr``, ``str`` and plain formatting return a placeholder.

    A secret cannot be pickled. Secrets with the same text are equal. The text is used literally: ``${VAR}`` is not
    expanded. Formatting hides the text too: write ``Secret(f"Bearer {token}")``, not ``f"Bearer {Secret(token)}"``.

    Args:
        value: the text to hide.

    Raises:
        ConfigError: `value` is not a str.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = _text_of_secret(value)

    def reveal(self) -> str:
        """Return the text."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __str__(self) -> str:
        return MASK

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled; pass a function that reads it, or pass its reveal() explicitly")

    def __getstate__(self) -> NoReturn:
        self.__reduce__()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __eq__(self, other: object) -> bool:
        return self._value == other._value if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash((Secret, self._value))


def _text_of_secret(value: object) -> str:
    if not isinstance(value, str):
        message = f"the value is {a_type(value)}; give a str (decode bytes first)"
        raise ConfigError(message, owner="Secret", source="Secret")
    return value


ConfigValue: TypeAlias = str | Secret | Callable[[], str | Awaitable[str]]
"""A str in which ``${VAR}`` is expanded, a `Secret`, or a function (plain or async) that returns a str."""


def shown_secret(value: object) -> str:
    return "None" if value is None else MASK


@final
class NamedValues(Frozen[str, ConfigValue]):
    """An immutable mapping whose ``repr`` shows only names."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{name!r}: {MASK}" for name in self) + "}"


def check_value(owner: str, field: str, name: str, value: object) -> str | None:
    """Return the text of a ConfigValue, or None for a function; refuse anything else."""
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, str):
        return value
    if not is_function(value):
        remedy = "give a str, a Secret, or a function that returns a str"
        raise refused(owner, f"{field}.{name}", f"{field}[{name!r}] is {a_type(value)}; {remedy}")
    return None


def check_mapping(owner: str, field: str, value: object) -> None:
    if not isinstance(value, Mapping):
        raise refused_type(owner, field, value, f'write {field}={{"NAME": "value"}}')


# --- Resolve values at each connect -----------------------------------------------------------------------------------


async def resolve(value: ConfigValue, environ: Mapping[str, str], *, where: str) -> str:
    """Return the current text of a value. Nothing is cached: the next connect sees a changed variable or a new token.

    A str is expanded (see `expand`). A `Secret` is used literally. A function is called, and awaited if async; the
    result is used literally.

    **Cancellation**: a checkpoint only inside an async function of the user. Nothing needs to be cleaned up.

    Args:
        value: the value as configured.
        environ: as for `expand`.
        where: as for `expand`.

    Raises:
        ConfigError: a variable is not set, a reference is malformed or the result is too long; the function raised (the
            exception is the ``__cause__``, and the message names only its type); or the function did not return a str.
    """
    if isinstance(value, str):
        return expand(value, environ, where=where, variables=variables_in(value))
    if isinstance(value, Secret):
        return value.reveal()
    try:
        text: object = await answer_of(value())
    except Exception as exc:
        # The user's code may raise anything; Cancelled is not an Exception, and passes. The text of an error may hold
        # the credential just read, so only the type goes into the message, which is logged and shown in status.
        problem = f"the function for this value raised {type(exc).__name__} (see the cause of this error)"
        raise _bad(where, problem) from exc
    if not isinstance(text, str):
        raise _bad(where, f"the function for this value returned {a_type(text)}; return a str")
    return text


async def resolve_env(env: Mapping[str, ConfigValue], environ: Mapping[str, str], *, where: str) -> dict[str, str]:
    """Resolve every value of ``env``; the name of the variable is appended to `where`.

    Raises:
        ConfigError: as for `resolve`, or a value contains a NUL character or cannot be encoded for the operating
            system.
    """
    return await _resolve_all(env, environ, where, env_problem)


async def resolve_headers(
    headers: Mapping[str, ConfigValue], environ: Mapping[str, str], *, where: str
) -> dict[str, str]:
    """Resolve every value of ``headers``; the name of the header is appended to `where`.

    Raises:
        ConfigError: as for `resolve`, or a value cannot be sent in a header. The error of the HTTP library would reveal
            the value.
    """
    return await _resolve_all(headers, environ, where, header_problem)


async def resolve_token(value: ConfigValue, environ: Mapping[str, str], *, where: str) -> str:
    """Resolve a bearer token.

    Raises:
        ConfigError: as for `resolve`, or the text cannot be sent as a token.
    """
    return await _resolve_checked(value, environ, where, token_problem)


async def resolve_secret(value: ConfigValue, environ: Mapping[str, str], *, where: str) -> str:
    """Resolve a secret shared by two processes.

    Raises:
        ConfigError: as for `resolve`, or the text is too short.
    """
    return await _resolve_checked(value, environ, where, secret_problem)


async def _resolve_all(
    values: Mapping[str, ConfigValue], environ: Mapping[str, str], where: str, problem_of: Callable[[str], str | None]
) -> dict[str, str]:
    return {
        name: await _resolve_checked(value, environ, f"{where}.{name}", problem_of) for name, value in values.items()
    }


async def _resolve_checked(
    value: ConfigValue, environ: Mapping[str, str], where: str, problem_of: Callable[[str], str | None]
) -> str:
    text = await resolve(value, environ, where=where)
    if problem := problem_of(text):
        raise _bad(where, problem)
    return text


def env_problem(text: str) -> str | None:
    """Return why a text cannot be an environment value, or None. No ``*_problem`` shows the text."""
    problem = system_problem(text)
    return None if problem is None else f"the value {problem}"


def system_problem(text: str) -> str | None:
    """Return why the operating system would refuse a text, or None."""
    if "\0" in text:
        return "contains a NUL character; remove it"
    try:
        os.fsencode(text)  # accepts any text that came from the system, even undecodable bytes
    except UnicodeEncodeError:
        return "contains a character that the system's encoding cannot represent; remove it, or run with a UTF-8 locale"
    return None


def header_problem(text: str) -> str | None:
    if "\n" in text or "\r" in text:
        return "the value contains a line break; strip it (the content of a file usually ends with one)"
    if text != text.strip():
        return "the value begins or ends with whitespace; strip it, and check whether a variable in it is empty"
    if not text.isascii() or not text.replace("\t", " ").isprintable():
        return "the value contains a character that is not printable ASCII; encode it"
    return None


def token_problem(text: str) -> str | None:
    if not text:
        return "the token is empty; check the variable or function that it comes from"
    if text.lower().startswith(("bearer ", "basic ")):
        return "the value begins with an auth scheme; give the bare token, or put the whole value into headers"
    return header_problem(text)
