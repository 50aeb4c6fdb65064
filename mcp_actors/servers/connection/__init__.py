"""One connection to one server: the actor and its tasks.

Refs use it for the actor of an isolated retry, the message that subscribes, and sign-ins; the group for the actor. This
room may touch requests, the record and everything below, the deadlines only through the record. It writes the parts of
the record that are about the current connection. It knows no caller, no retry and no other server.
"""

from __future__ import annotations

from ._actor import ServerActor as ServerActor
from ._streams import Subscribe as Subscribe
from ._upkeep import is_signed_in as is_signed_in, sign_in_to as sign_in_to, sign_out_of as sign_out_of
