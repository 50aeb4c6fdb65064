"""One connection to one server: the actor and its tasks.

Read ``_actor`` first: it opens the link and the session, and uses all other files: ``_negotiation`` chooses the era;
``_callbacks`` answers the server; ``_streams`` follows announced changes; ``_upkeep`` renews lists and signs in;
``_direct`` carries out requests without a task of their own.

A connect may start a process a second time, and a request that has reached no server may be queued again. All other
restarts are up to the supervisors (``group/_tree``), and all other retries up to the refs.
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
