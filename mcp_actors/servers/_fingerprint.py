"""What tells one configured server from another, from one run of a program to the next."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from ..config import Http, Sse, Stdio, is_auth_flow
from ..config._masking import mask_args

if TYPE_CHECKING:
    from ..config import ServerConfig, Transport

__all__ = ["fingerprint"]


def fingerprint(config: ServerConfig) -> str | None:
    """Return a hexadecimal text that two configurations share if they have the same name and reach the same server.

    It is of the configuration as it was written: nothing is resolved. No value of ``env``, headers or ``auth`` goes
    into it, and of arguments and URLs only what may be shown: nobody can find a credential by trying.

    Returns None for a server in this process: there is nothing by which the next run could know it again.
    """
    shape = _shape(config.transport)
    if shape is None:
        return None
    text = json.dumps([config.name, type(config.transport).__name__, *shape])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _shape(transport: Transport) -> list[object] | None:
    match transport:
        case Stdio(command=command, args=args, cwd=cwd, env=env, env_from=env_from):
            return [command, mask_args(args), cwd, sorted(env), sorted(env_from)]
        case Http(headers=headers, auth=auth) | Sse(headers=headers, auth=auth):
            scheme = None if auth is None else type(auth).__qualname__ if is_auth_flow(auth) else "bearer"
            return [transport.display_url, sorted(name.lower() for name in headers), scheme]
    return None
