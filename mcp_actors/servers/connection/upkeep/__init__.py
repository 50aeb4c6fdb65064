"""The background tasks of a connection: refresh lists, receive changes, renew subscriptions.

Only the actor comes in, and refs for the message that subscribes. It may touch requests, the record and everything
below, but not the connection around it.
"""

from __future__ import annotations

from ._lifetime import report_lifetime as report_lifetime
from ._notifications import ChangeStream as ChangeStream, lists_that_change as lists_that_change
from ._resources import keep_resources_listed as keep_resources_listed
from ._sign_in import (
    ask_to_sign_in as ask_to_sign_in,
    can_ask as can_ask,
    is_signed_in as is_signed_in,
    sign_in_to as sign_in_to,
    sign_out_of as sign_out_of,
)
from ._subscriptions import Subscribe as Subscribe, renew_subscriptions as renew_subscriptions
from ._tools import keep_refreshed as keep_refreshed
