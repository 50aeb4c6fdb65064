"""One connection to one server: the actor and its tasks.

Read ``_actor`` first: it opens the link and the session, and uses all other files: ``_negotiation`` (the era, and time
to connect), ``_callbacks``, ``_streams`` (announced changes), ``_upkeep`` (lists, age, sign-in), and ``_direct``
(requests without a task, and the end of a connection).

A connect may start a process a second time, and a request without effect may be requeued. All other restarts are up to
the supervisors (``group/_tree``), and all other retries up to the refs.
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
