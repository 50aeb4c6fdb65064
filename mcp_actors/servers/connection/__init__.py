"""One connection to one server: the actor and its tasks.

Refs come in for the actor and its messages, the group for the actor. It may touch requests, the record and everything
below.
"""

from __future__ import annotations

from ._actor import ServerActor as ServerActor
from ._streams import Subscribe as Subscribe
from ._upkeep import is_signed_in as is_signed_in, sign_in_to as sign_in_to, sign_out_of as sign_out_of
