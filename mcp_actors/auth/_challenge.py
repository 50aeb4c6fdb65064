"""Read the challenge of a server that refuses a request (``WWW-Authenticate``).

The SDK looks for ``scope=`` and other fields anywhere in the header, so the value of one field could pass for another
field. So the header is read here, and the SDK gets one that is written anew from the three fields that it uses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Final

import httpx2
from attrs import frozen

from ._failures import Refused

HEADER: Final = "www-authenticate"

_PART: Final = re.compile(
    r"""(?P<before>[\s,]*+)(?:
        (?P<name>[!#$%&'*+.^`|~\w-]++)(?:\s*+=\s*+(?:"(?P<quoted>(?:[^"\\]|\\.)*+)"|(?P<bare>[^\s,"]*+)))?
        |[^,]*+)""",
    re.ASCII | re.DOTALL | re.VERBOSE,
)
"""A scheme, or a parameter with its value (RFC 9110, 11.6.1); or what is neither, up to a comma. In linear time."""

_FIELDS: Final = ("error", "resource_metadata", "scope")
_LIKE_A_FIELD: Final = re.compile(rf"({'|'.join(_FIELDS)})=")
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # RFC 6749, 3.3
_NOT_IN_URL: Final = re.compile(r'[\x00-\x20"\\\x7f]')
_MORE_SCOPES: Final = "insufficient_scope"


@frozen(kw_only=True)
class Challenge:
    """The fields of a challenge that a sign-in uses.

    Attributes:
        scope: the scopes that the server asks for; those that are not valid are left out.
        resource_metadata: the URL of its metadata.
        error: the reason of the refusal.
    """

    scope: str | None = None
    resource_metadata: str | None = None
    error: str | None = None

    @property
    def wants_more_scopes(self) -> bool:
        """True if a token is good, but not for this request."""
        return self.error == _MORE_SCOPES

    def refusal(self, request: httpx2.Request, scope: str | None) -> httpx2.Response:
        """Return the answer to a request as the SDK gets it, with the scopes to ask for.

        Raises:
            Refused: the URL of the metadata is not a URL.
        """
        fields = {"scope": scope, "error": _MORE_SCOPES if self.wants_more_scopes else None}
        fields["resource_metadata"] = self._inert_url()
        header = ", ".join(f'{name}="{value}"' for name, value in fields.items() if value is not None)
        headers = httpx2.Headers({HEADER: f"Bearer {header}"}, encoding="utf-8")
        status = HTTPStatus.FORBIDDEN if self.wants_more_scopes else HTTPStatus.UNAUTHORIZED
        return httpx2.Response(status, headers=headers, content=b"", request=request)

    def _inert_url(self) -> str | None:
        """Return the URL of the metadata so that no part of it looks like a field: ``%73cope=`` means ``scope=``."""
        url = self.resource_metadata
        if url is not None and _NOT_IN_URL.search(url):
            raise Refused("invalid_metadata", "the challenge of the server names metadata without a valid URL")
        return url and _LIKE_A_FIELD.sub(lambda found: f"%{ord(found[0][0]):X}{found[0][1:]}", url)


def read_challenge(header: str | None) -> Challenge:
    """Return the challenge in a header: that of ``Bearer`` if it has a field that a sign-in uses, or else another."""
    used = [each for each in _challenges(header or "") if not each[1].keys().isdisjoint(_FIELDS)]
    found = min(used, key=lambda each: each[0] != "bearer", default=("", {}))[1]
    scopes = filter(_SCOPE.fullmatch, found.get("scope", "").split())
    return Challenge(
        scope=" ".join(scopes) or None,
        resource_metadata=found.get("resource_metadata") or None,
        error=found.get("error") or None,
    )


def challenge_of(response: httpx2.Response) -> Challenge:
    """Return the challenge in an answer."""
    return read_challenge(response.headers.get(HEADER))


def _challenges(header: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield each scheme with its parameters, the first of each name."""
    scheme, parameters = "", dict[str, str]()
    for part in _PART.finditer(header):
        name, quoted, bare = part["name"], part["quoted"], part["bare"]
        if quoted is not None or bare is not None:
            parameters.setdefault(name.lower(), bare if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        elif name is not None and (part.start() == 0 or "," in part["before"]):
            yield scheme, parameters
            scheme, parameters = name.lower(), {}
    yield scheme, parameters
