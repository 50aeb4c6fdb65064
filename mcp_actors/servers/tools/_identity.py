"""Identify a configured server across runs of a program.

The identity comes from the configuration as written, with nothing resolved. It contains no value of ``env``, headers or
``auth``, and masked arguments and URLs only, because a short credential can be found from its hash by trying.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ...catalog import identity_pin
from ...catalog._tools import digest
from ...config import Http, Sse, Stdio, TransportTemplate, is_auth_flow
from ...config._values import mask_args

if TYPE_CHECKING:
    from ...config import ServerConfig, Transport


def fingerprint(config: ServerConfig) -> str | None:
    """Return a hexadecimal key for what is remembered of a server; None for a server in this process.

    A server from a configuration file is identified by the file and its name there, not by its command. A file that
    suddenly starts another program under that name is therefore noticed, and programs with different files do not
    disturb each other. A server configured in code is identified by its name and its `launch_identity`.
    """
    identity = launch_identity(config.transport)
    if identity is None:
        return None
    if config.source is not None and os.path.isabs(config.source):
        return digest({"name": config.name, "source": config.source})
    return digest({"name": config.name, **identity})


def launch_pin(config: ServerConfig) -> str | None:
    """Return the pin of a server's command or URL; None for a server in this process."""
    identity = launch_identity(config.transport)
    return None if identity is None else identity_pin({"launch": digest({"name": config.name, **identity})})


def launch_identity(transport: Transport) -> dict[str, object] | None:
    """Return a server's command or URL as JSON-like data.

    None for a server in this process: the next run has nothing to recognize it by.
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
