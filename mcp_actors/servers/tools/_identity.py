"""What tells one configured server from another, from one run of a program to the next.

It is taken from the configuration as it was written: nothing is resolved. No value of ``env``, headers or ``auth`` goes
into it, and of arguments and URLs only what may be shown: who has the hash of a short credential can find it by trying.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ...catalog import identity_pin
from ...catalog.values import digest
from ...config import Http, Sse, Stdio, TransportTemplate, is_auth_flow
from ...config.values import mask_args

if TYPE_CHECKING:
    from ...config import ServerConfig, Transport

__all__ = ["fingerprint", "launch_identity", "launch_pin"]


def fingerprint(config: ServerConfig) -> str | None:
    """Return a hexadecimal text that two configurations share if what is remembered of one is about the other, too.

    Of a server that stands in a file, that is its place: its name there, whatever it is started from. So whoever has
    the file start something else under that name is noticed, and programs with files of their own do not disturb each
    other. One that was made by a program is known by its name and its `launch_identity`.
    """
    identity = launch_identity(config.transport)
    if identity is None:
        return None
    if config.source is not None and os.path.isabs(config.source):
        return digest({"name": config.name, "source": config.source})
    return digest({"name": config.name, **identity})


def launch_pin(config: ServerConfig) -> str | None:
    """Return the pin of what a server is started from or reached at; None if nobody can say what that is."""
    identity = launch_identity(config.transport)
    return None if identity is None else identity_pin({"launch": digest({"name": config.name, **identity})})


def launch_identity(transport: Transport) -> dict[str, object] | None:
    """Return what a server is started from or reached at, as JSON-like data.

    None for a server in this process: there is nothing by which the next run could know it again.
    """
    match transport:
        case Stdio(command=command, args=args, cwd=cwd, env=env, env_from=env_from):
            variables = {"env": sorted(env), "env_from": sorted(env_from)}
            return {"kind": "stdio", "command": command, "args": mask_args(args), "cwd": cwd, **variables}
        case Http(headers=headers, auth=auth) | Sse(headers=headers, auth=auth):
            kind = "sse" if isinstance(transport, Sse) else "http"
            scheme = None if auth is None else type(auth).__qualname__ if is_auth_flow(auth) else "bearer"
            names = sorted(name.lower() for name in headers)
            return {"kind": kind, "url": transport.display_url, "headers": names, "auth": scheme}
        case TransportTemplate():
            return {"kind": transport.kind, **transport.display_options}
    return None
