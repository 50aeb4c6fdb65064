"""Transports: how a server is reached, and what must be masked.

Imported by `ServerConfig`, by the readers of files and by the servers. This room uses the validators and the values of
the folder around it.
"""

from __future__ import annotations

from ._hosts import is_loopback as is_loopback, is_not_public as is_not_public
from ._http import Http as Http, Sse as Sse, is_auth_flow as is_auth_flow
from ._in_process import InProcess as InProcess
from ._oauth import OAuth as OAuth, SignInCallback as SignInCallback, TokenStore as TokenStore
from ._sandbox import Sandbox as Sandbox
from ._secrets import INHERITED as INHERITED, secrets_in as secrets_in, variables_of as variables_of
from ._stdio import Stdio as Stdio
from ._template import (
    INTERPRETERS as INTERPRETERS,
    Kind as Kind,
    Transport as Transport,
    TransportTemplate as TransportTemplate,
    make_transport as make_transport,
    speaks_sse as speaks_sse,
)
