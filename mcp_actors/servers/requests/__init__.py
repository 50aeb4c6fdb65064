"""The messages to a server actor.

This file only gathers the public names. A ref, or a task of a connection, sends a message to the actor's mailbox; the
actor carries it out on a connection's session. Other messages are in ``connection`` and ``ref``.
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
    LastAnswer as LastAnswer,
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
    HealthProbe as HealthProbe,
    SetLogLevel as SetLogLevel,
    TellRootsChanged as TellRootsChanged,
    check_health as check_health,
    given_level as given_level,
    keep_checking as keep_checking,
    keep_log_level as keep_log_level,
    unhealthy as unhealthy,
)
