"""References to servers: how requests are sent, and changes asked for.

``_ref`` is what programs hold, ``_facts`` its members that only read, which the views of other event loops have too,
``_prompts`` has its methods for prompts, completion and resources, with their messages,
``_caller`` sends a request with its retries, and ``_lifecycle`` has the changes of servers, the messages about them,
and `ServerEntry`: a server with its supervisors.

The roster of a group makes refs; the group also uses the changes, and the bridge the refs and their requests without a
task (`PendingRequest`). The room uses the connection, requests, the record, failures, rules, and types of the session,
the deadlines and the admission. It puts requests into the mailbox of an actor, changes what is wanted of a server,
starts actors by the supervisors, runs the actor of an isolated retry, and has a person signed in and out. It reads the
record, and writes parts of it: the calls, answers for the health, subscriptions, approved tools, what is wanted, and
that a server was woken or stopped. Of the group it knows the supervisor and the actor that carries out changes; it
imports no file of ``group``.
"""

from __future__ import annotations

from ._caller import PendingRequest as PendingRequest, RequestOptions as RequestOptions
from ._facts import ServerFacts as ServerFacts
from ._lifecycle import (
    Look as Look,
    Reconnect as Reconnect,
    Retire as Retire,
    ServerEntry as ServerEntry,
    Wish as Wish,
    reconnect as reconnect,
    start_again as start_again,
    take_back as take_back,
    tell as tell,
    wait_started as wait_started,
)
from ._ref import ServerRef as ServerRef
