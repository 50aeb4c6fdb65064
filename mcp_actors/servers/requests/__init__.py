"""The messages to a server actor, each with its execution.

Connections and refs come in. It may touch the record and everything below.
"""

from __future__ import annotations

from ._arguments import given_text as given_text, given_texts as given_texts, refused as refused
from ._health_checks import (
    Probe as Probe,
    check_health as check_health,
    keep_checking as keep_checking,
)
from ._log_level import SetLogLevel as SetLogLevel, given_level as given_level, keep_log_level as keep_log_level
from ._middleware import send_through as send_through
from ._pages import Kind as Kind, ListAll as ListAll
from ._plain import (
    NO_EXTRAS as NO_EXTRAS,
    Extras as Extras,
    PlainRequest as PlainRequest,
    first_problem as first_problem,
    members_of as members_of,
)
from ._progress import Answered as Answered, Reports as Reports
from ._request import (
    Request as Request,
    meta_for as meta_for,
    request_internally as request_internally,
)
from ._resources import (
    PROMPTS as PROMPTS,
    RESOURCES as RESOURCES,
    TEMPLATES as TEMPLATES,
    KeepResources as KeepResources,
)
from ._roots import TellRootsChanged as TellRootsChanged
from ._tools import (
    CallTool as CallTool,
    ListTools as ListTools,
    list_all_tools as list_all_tools,
    members_of_call as members_of_call,
)
