"""One connection to one server: the actor and its tasks.

This file only gathers names. Read ``_actor`` first. It opens the link and the session, and uses the other files:

- ``_negotiation`` chooses the era.
- ``_callbacks`` answers requests of the server.
- ``_streams`` receives notifications of changes.
- ``_upkeep`` renews lists, and signs in to the server.
- ``_direct`` sends requests without starting a task.

Supervisors (``group/_tree``) restart connections, and refs retry failed requests.
"""

from __future__ import annotations

from ._actor import ServerActor as ServerActor
from ._streams import Subscribe as Subscribe
from ._upkeep import (
    AFTER_FAILURE as AFTER_FAILURE,
    is_signed_in as is_signed_in,
    keep_trying as keep_trying,
    sign_in_to as sign_in_to,
    sign_out_of as sign_out_of,
)
