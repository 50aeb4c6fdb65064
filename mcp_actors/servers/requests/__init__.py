"""The messages to a server actor, each with its execution.

``_request`` has the base classes and the validation of arguments, ``_lists`` fetches lists and has the messages that
list resources and prompts, ``_tools`` calls and lists of tools and the way through middleware, ``_upkeep`` health
checks, log level and roots. Other messages are in ``connection`` (subscriptions) and in ``ref`` (get a prompt, read a
resource, complete).

Refs and the tasks of a connection send them, and the connection executes them on its session. The room uses the record,
``_session``, ``_eras``, ``_rules``, ``_admission``, and the reports of the dispatcher. It writes the lists of the
record, its health, its log level and its deadlines. It calls the program's middleware, and logs. It imports neither
refs nor the connection.
"""

from __future__ import annotations

from ._lists import (
    PROMPTS as PROMPTS,
    RESOURCES as RESOURCES,
    TEMPLATES as TEMPLATES,
    KeepResources as KeepResources,
    Kind as Kind,
    ListAll as ListAll,
)
from ._request import (
    NO_EXTRAS as NO_EXTRAS,
    UNANSWERED as UNANSWERED,
    Extras as Extras,
    Kept as Kept,
    Passing as Passing,
    PlainRequest as PlainRequest,
    Request as Request,
    given_object as given_object,
    given_passing as given_passing,
    given_text as given_text,
    given_texts as given_texts,
    members_of as members_of,
    meta_for as meta_for,
    refused as refused,
    request_internally as request_internally,
)
from ._tools import Around as Around, CallTool as CallTool, ListTools as ListTools, list_all_tools as list_all_tools
from ._upkeep import (
    LEVELS as LEVELS,
    Probe as Probe,
    SetLogLevel as SetLogLevel,
    TellRootsChanged as TellRootsChanged,
    check_health as check_health,
    given_level as given_level,
    keep_checking as keep_checking,
    keep_log_level as keep_log_level,
    unhealthy as unhealthy,
)
