"""Classify HTTP error statuses for retries and the circuit breaker."""

from __future__ import annotations

from typing import Final

from attrs import frozen


@frozen
class Meaning:
    """The meaning of a status.

    Attributes:
        transient: True if the same request may succeed later without any change (retry).
        trouble: True if the server has trouble; False if it works and has judged the request (circuit breaker).
    """

    transient: bool
    trouble: bool


_CLIENT_ERROR: Final = Meaning(transient=False, trouble=False)
_SERVER_ERROR: Final = Meaning(transient=True, trouble=True)

_EXCEPTIONS: Final = {
    408: _SERVER_ERROR,  # Request Timeout: the server did not get to the request
    425: Meaning(transient=True, trouble=False),  # Too Early: about the moment of the request
    429: _SERVER_ERROR,  # Too Many Requests
    501: Meaning(transient=False, trouble=True),  # Not Implemented: the same request always gets it
    505: Meaning(transient=False, trouble=True),  # HTTP Version Not Supported: likewise
}


def meaning_of(status: int) -> Meaning:
    """Return the meaning of an error status."""
    return _EXCEPTIONS.get(status, _SERVER_ERROR if 500 <= status <= 599 else _CLIENT_ERROR)
