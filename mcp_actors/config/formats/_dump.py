"""`dump_config`: turn servers into data that `load_config` reads.

No credential may get into this data by accident. Values of ``env``, ``headers``, ``auth`` and ``secret`` must be
variables like ``${TOKEN}``. In arguments and URLs, only a literal that looks like a secret is refused.

Owns: nothing.
Writes: nothing.
Calls: config, _keys, _programs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import attrs
from mcp.types import Tool

from ..._collapse import first_of
from ..._errors import ConfigError
from ..._misuse import explained
from .._oauth import OAuth
from .._server import ServerConfig, check_unique_names
from .._template import kind_of, texts_of
from .._transports import Http, InProcess, Socket, Sse, Stdio, is_auth_flow
from .._validators import changed
from .._values import (
    INPUT,
    Part,
    Reference,
    Secret,
    Written,
    literal,
    literal_secrets,
    mask_args,
    parse,
    references,
    variables_in,
)
from ._keys import OF_OAUTH, SETTINGS
from ._programs import predefined

_OUTSIDE: Final = ("command", "args", "cwd", "env", "url", "headers", "socket", "server", "secret", "secret_file")
"""Options written directly in an entry, not below its key ``mcp_actors``."""

_CREDENTIAL_PREFIX: Final = re.compile(r"\s*(?:[A-Za-z][A-Za-z-]{0,15}\s+)?")
"""Literal text in front of a credential's variable: ``Bearer ${TOKEN}``."""

_NAMES: Final = re.compile(r"(?:-{0,2}[A-Za-z_][\w.-]*[=:]\s*){0,2}")
"""The names in an argument: ``--token=…``, ``Authorization: …``, ``--header=Authorization: …``."""

_USER_INFO: Final = re.compile(r"://(?P<text>[^/?#]*)@")


@explained
def dump_config(servers: Iterable[ServerConfig], *, literals: bool = False) -> dict[str, Any]:
    """Return the configuration of servers in the form of ``mcpServers``, for `load_config` and for other programs.

    Write the result with ``json.dump``. Values of ``env``, ``headers`` and ``auth``, and user-info in a URL, must be
    variables: ``${TOKEN}``, ``Bearer ${TOKEN}``, but not ``${TOKEN:-x}``, because a default is a literal. `load_config`
    returns equal servers, except that a `Secret` is then a str. Only fields that differ from their defaults are
    written. No variable is resolved.

    Args:
        servers: the servers, for example ``load_config(file).servers``.
        literals: True also writes credentials that are not variables, to review in full what would be started or
            contacted. Default False refuses them.

    Returns:
        The configuration, as data that JSON can hold.

    Raises:
        ConfigError: a credential is not a variable, and `literals` is False; a value is malformed, or a Python object
            (a function, a server in this process …); or two servers have the same name. The first problem is raised,
            with the others as notes.
    """
    servers = tuple(servers)
    check_unique_names(servers)
    dumping = [_Dumping(server, literals=literals) for server in servers]
    document: dict[str, Any] = {"mcpServers": {each.server.name: each.entry() for each in dumping}}
    if errors := [error for each in dumping for error in each.errors]:
        raise first_of(errors)
    if inputs := sorted({name for each in dumping for name in each.inputs}):
        document["inputs"] = [{"id": name, "type": "promptString", "password": True} for name in inputs]
    return document


@attrs.define
class _Dumping:
    server: ServerConfig
    literals: bool = attrs.field(kw_only=True)
    errors: list[ConfigError] = attrs.field(factory=list)
    inputs: set[str] = attrs.field(factory=set)

    def entry(self) -> dict[str, Any]:
        transport = self.server.transport
        if isinstance(transport, InProcess):
            self._refuse("transport", "is a server in this process, which a file cannot hold; leave this server out")
            return {}
        entry: dict[str, Any] = {}
        kind = kind_of(transport)
        if kind in ("http", "sse"):
            entry["type"] = kind
        settings = {}
        for name, value in self._options(transport):
            if name in _OUTSIDE:
                entry[name] = value
            elif name == "auth" and not isinstance(value, str):
                entry["oauth"] = value
            else:
                settings[name] = value
        if not self.server.enabled:
            entry["enabled"] = False
        settings |= self._settings(self.server, "", skip=("name", "transport", "source", "enabled"))
        return {**entry, SETTINGS: settings} if settings else entry

    def _options(self, transport: Stdio | Http | Sse | Socket) -> Iterator[tuple[str, Any]]:
        for name, value in changed(transport).items():
            if name in ("env", "headers"):
                yield name, {key: self._credential(f"{name}.{key}", each) for key, each in value.items()}
            elif name == "auth":
                yield name, self._auth(value)
            elif name == "secret":
                yield name, self._credential(name, value)
            elif name == "address":
                yield "socket", self._text(value) if isinstance(value, str) else self._plain("address", value)
            elif name == "args":
                self._check_args(value)
                yield name, [self._text(each) for each in value]
            elif name in ("command", "cwd", "url", "server", "secret_file"):
                if name == "url":
                    self._check_url(value)
                elif name != "secret_file" and value.partition("/")[0] == "~":
                    self._refuse(name, "begins with '~', which load_config expands; write the whole path")
                yield name, self._text(value)
            else:
                yield name, self._plain(name, value)

    @property
    def _known(self) -> Mapping[str, str]:
        """The values of variables known only from the server's file."""
        texts = (text for _, text in texts_of(self.server.transport))
        return next(filter(None, map(variables_in, texts)), {})

    def _parsed(self, text: str, where: str = "") -> tuple[Part, ...]:
        try:
            return parse(text, where=where, variables=self._known)
        except ConfigError as error:
            self._refuse(where, f"is not valid: {error.problem}")
            return ()

    def _text(self, text: str) -> str:
        return self._unparsed(self._parsed(text)) if isinstance(text, Written) else literal(text)

    def _unparsed(self, parts: Iterable[Part]) -> str:
        """Return a string as in a file; a variable that the current directory would change becomes its value.

        Such a variable is an editor's: ``${workspaceFolder}``.
        """
        here, known = predefined(None), self._known
        texts = []
        for part in parts:
            if isinstance(part, str):
                texts.append(literal(part))
            elif (
                part.text in known
                and not part.text.startswith(("input:", "env:"))
                and (here.get(part.text) != known[part.text])
            ):
                texts.append(literal(known[part.text]))
            else:
                named = map(INPUT.fullmatch, (each.text for each in references((part,))))  # also in the default
                self.inputs |= {asked["id"] for asked in named if asked}
                texts.append(f"${{{part.text}}}")
        return "".join(texts)

    def _credential(self, place: str, value: object) -> str | None:
        if isinstance(value, Secret):
            value = literal(value.reveal())
        if not isinstance(value, str):
            what = "an auth flow" if is_auth_flow(value) else "a function"
            self._refuse(place, f"is {what}, which a file cannot hold; use a variable")
            return None
        parts = self._parsed(value, place)
        if has_literal(parts):
            self._refuse_literal(place, parts)
        return self._unparsed(parts)

    def _auth(self, value: object) -> object:
        """Return a token, or the value of ``oauth``: True or an object."""
        if not isinstance(value, OAuth):
            return self._credential("auth", value)
        details = {}
        for name, each in changed(value).items():
            write = self._credential if name == "client_secret" else self._plain
            if name in OF_OAUTH:
                details[OF_OAUTH[name]] = write(f"auth.{name}", each)
            else:
                self._refuse(f"auth.{name}", "has no key in a file; set it in Python")
        return details or True

    def _check_url(self, url: str) -> None:
        if self._has_literal_user_info(url):
            self._refuse_literal("url (its user-info)")
        for part in literal_secrets(url):
            self._refuse_literal(f"url ({part})")

    def _check_args(self, args: tuple[str, ...]) -> None:
        if self.literals:
            return  # nothing is refused, and an argument without variables may not parse: an unclosed '${'
        for index, (arg, masked) in enumerate(zip(args, mask_args(args), strict=True)):
            if arg == masked:
                continue
            parts: tuple[Part, ...] = ()
            if "://" in arg:
                refused = "${" not in arg or self._has_literal_user_info(arg)
            else:
                parts = self._parsed(_NAMES.sub("", arg, count=1), f"args[{index}]")
                refused = has_literal(parts)
            if refused:
                self._refuse_literal(f"args[{index}]", parts)

    def _has_literal_user_info(self, url: str) -> bool:
        # Without urlsplit, which refuses a variable in brackets (IPv6). Not split at ':', which ${env:NAME} contains.
        found = _USER_INFO.search(url)
        parts = self._parsed(found["text"], "url") if found else ()
        return any(_is_literal(part.replace(":", "") if isinstance(part, str) else part) for part in parts)

    def _settings(self, thing: Any, path: str, *, skip: tuple[str, ...] = ()) -> dict[str, Any]:
        found = {name: value for name, value in changed(thing).items() if name not in skip}
        return {name: self._plain(f"{path}{name}", value) for name, value in found.items()}

    def _plain(self, place: str, value: Any) -> Any:
        if value is None or isinstance(value, (str, bool, int, float)):
            return value
        if isinstance(value, (tuple, list, frozenset)):
            return [self._plain(f"{place}[{index}]", each) for index, each in enumerate(value)]
        if isinstance(value, Tool):
            return value.model_dump(mode="json", by_alias=True, exclude_none=True)
        if attrs.has(type(value)) and not callable(value) and place != "callbacks":
            return self._settings(value, f"{place}.")
        self._refuse(place, f"is a Python object ({type(value).__name__}), which a file cannot hold; set it in Python")
        return None

    def _refuse_literal(self, place: str, parts: Iterable[Part] = ()) -> None:
        problem = "is a literal value; write it as ${VARIABLE}"
        if references := [part for part in parts if isinstance(part, Reference)]:
            problem = "has text next to a variable; put the whole value into the variable"
            if any(map(_is_literal, references)):
                problem = "has a default, which would be written; remove the default"
        if not self.literals:
            self._refuse(place, f"{problem}, or pass literals=True")

    def _refuse(self, place: str, problem: str) -> None:
        name = self.server.name
        error = ConfigError(f"server {name!r}: {place} {problem}", source="dump_config", path=f"servers.{name}.{place}")
        self.errors.append(error)


def has_literal(parts: Iterable[Part]) -> bool:
    """Return whether a credential has literal text, except for a scheme in front of a variable."""
    parts = [part for part in parts if part]
    if len(parts) > 1 and isinstance(parts[0], str) and _CREDENTIAL_PREFIX.fullmatch(parts[0]):
        parts = parts[1:]
    return any(_is_literal(part) for part in parts)


def _is_literal(part: Part) -> bool:
    if isinstance(part, Reference):
        return part.default is not None and any(_is_literal(each) for each in part.default if each)
    return bool(part.strip())
