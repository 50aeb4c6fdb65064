"""One connection to one server: the actor and its tasks.

``_actor`` opens the link and the session, and puts the other files together: ``_negotiation`` (the protocol era, and
the time for a connect), ``_callbacks``, ``_streams`` (announced changes), ``_upkeep`` (lists, age, sign-in), and
``_direct`` (requests without a task, and the end of a connection).

The group uses it for the actor; refs use it for the actor of an isolated retry, the message that subscribes, and for
signing in and out; the gateway uses `keep_trying` for the lists that it keeps.

The room uses requests, the record, ``_failures``, ``_session``, ``_dispatcher``, ``_catalog``, ``_rules`` and
``_eras``, but imports neither ``_deadlines`` nor ``_admission``. It also uses the transports, which start processes and
use the network, and the sign-in. It writes the parts of the record that `ConnectionRecord` assigns to a connection, and
parts of the state, the health, the deadlines and the subscriptions; and it runs callbacks and extensions of the
program. It may start a process a second time within a connect, and requeue requests that had no effect; other
restarts are up to the supervisors, other retries of callers' requests up to the refs, and it imports neither.
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
