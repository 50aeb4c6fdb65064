"""Read how to sign in to a server by OAuth."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ...._errors import ConfigError
from ...transports import OAuth
from .._places import bad, child, found, nearest, shown_key
from ._surroundings import Surroundings

FIELDS: Final[Mapping[str, str]] = {
    "account": "account",
    "clientid": "client_id",
    "clientsecret": "client_secret",
    "clientmetadataurl": "client_metadata_url",
    "scope": "scopes",
    "scopes": "scopes",
    "redirecturi": "redirect",
    "redirecturl": "redirect",
    "callbackport": "redirect",
    "granttype": "grant",
    "issuer": "issuer",
    "assumepkce": "assume_pkce",
    "sendresource": "send_resource",
}
"""Key, in lower case and without underscores → the argument of `OAuth`: programs spell the same keys in many ways."""

_MARKS: Final = frozenset({"type", "enabled"})
"""Keys that only say that there is a sign-in."""

_WORD: Final = "oauth"


def is_oauth(key: str, value: object) -> bool:
    """Return True if the value of a key describes a sign-in, or a word under ``auth`` is nearly ``"oauth"``.

    Any other word under ``auth`` is a token.
    """
    return key == "oauth" or (key == "auth" and (nearest(value, [_WORD]) is not None or isinstance(value, Mapping)))


def _says_oauth(value: object) -> bool:
    return isinstance(value, str) and value.lower() == _WORD


def read_oauth(value: object, place: str, around: Surroundings) -> OAuth | None:
    """Return how to sign in; None if the entry turns that off.

    Raises:
        ConfigError: a value is not valid.
    """
    if value is False or (isinstance(value, Mapping) and value.get("enabled") is False):
        return None
    if value is True or _says_oauth(value):
        return OAuth()
    if nearest(value, [_WORD]) is not None:
        # It would be sent as a token. It is shown because it can hardly be one.
        problem = f'found {shown_key(value)}; write "oauth" to sign in, or a token like this in the headers'
        raise bad(around.source, place, problem)
    if not isinstance(value, Mapping):
        raise bad(around.source, place, f'found {found(value)}; write "oauth", or an object like {{"clientId": "…"}}')
    fields: dict[str, Any] = {}
    places: dict[str | None, str] = {}
    for key, each in value.items():
        word, where = re.sub("[-_]", "", str(key)).lower(), child(place, str(key))
        field = FIELDS.get(word)
        if field is not None:
            fields[field] = _redirect(around.source, where, each) if word == "callbackport" else each
            places[field] = where
        elif key not in _MARKS:
            around.warn(where, "this is not supported and has no effect")
    try:
        return OAuth(**fields)
    except ConfigError as error:
        problem = str(error).removeprefix(f"{error.source}: ")
        raise bad(around.source, places.get(error.path, place), problem) from None


def _redirect(source: str, place: str, port: object) -> str:
    if type(port) is not int or not 0 < port < 2**16:
        raise bad(source, place, f"found {found(port)}; write the number of a port, from 1 to 65535")
    return f"http://localhost:{port}/callback"
