"""Read how to sign in to a server by OAuth."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ...transports import OAuth
from .._places import bad, child, found
from ._surroundings import Surroundings

__all__ = ["is_oauth", "read_oauth"]

FIELDS: Final[Mapping[str, str]] = {
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
}
"""Key, in lower case and without underscores → the argument of `OAuth`: programs spell the same keys in many ways."""

_MARKS: Final = frozenset({"type", "enabled"})
"""Keys that only say that there is a sign-in."""


def is_oauth(key: str, value: object) -> bool:
    """Return True if the value of a key describes a sign-in: ``"auth": "oauth"``, or an object under either key."""
    return key == "oauth" or (key == "auth" and (value == "oauth" or isinstance(value, Mapping)))


def read_oauth(value: object, place: str, around: Surroundings) -> OAuth | None:
    """Return how to sign in; None if the entry turns that off.

    Raises:
        ConfigError: a value is not valid.
    """
    if value is False or (isinstance(value, Mapping) and value.get("enabled") is False):
        return None
    if value is True or value == "oauth":
        return OAuth()
    if not isinstance(value, Mapping):
        raise bad(around.source, place, f'found {found(value)}; write "oauth", or an object like {{"clientId": "…"}}')
    fields: dict[str, Any] = {}
    for key, each in value.items():
        field = FIELDS.get(re.sub("[-_]", "", str(key)).lower())
        if field is not None:
            fields[field] = _redirect(each) if type(each) is int and field == "redirect" else each
        elif key not in _MARKS:
            around.warn(child(place, str(key)), "this is not supported and has no effect")
    return OAuth(**fields)


def _redirect(port: int) -> str:
    return f"http://localhost:{port}/callback"
