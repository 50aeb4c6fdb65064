"""The messages to a server actor, each with its execution.

Refs make them, and connections execute them, on their session. This room may touch the session, the record and
everything below. It writes the lists of the record, its health and its log level, and knows no caller and no
connection.
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
    Answered as Answered,
    Extras as Extras,
    PlainRequest as PlainRequest,
    Reports as Reports,
    Request as Request,
    first_problem as first_problem,
    given_text as given_text,
    given_texts as given_texts,
    members_of as members_of,
    meta_for as meta_for,
    refused as refused,
    request_internally as request_internally,
)
from ._tools import (
    CallTool as CallTool,
    ListTools as ListTools,
    list_all_tools as list_all_tools,
    members_of_call as members_of_call,
    send_through as send_through,
)
from ._upkeep import (
    Probe as Probe,
    SetLogLevel as SetLogLevel,
    TellRootsChanged as TellRootsChanged,
    check_health as check_health,
    given_level as given_level,
    keep_checking as keep_checking,
    keep_log_level as keep_log_level,
)
