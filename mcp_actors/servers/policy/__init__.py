"""The rules of one server: retries, breaker, deadlines, health, parking, eras.

Decisions on plain data. All rooms above use it. It uses `basics`, and knows no record, connection or request.
"""

from __future__ import annotations

from ._bounded import (
    bounded as bounded,
    check_request as check_request,
    check_result as check_result,
    fits as fits,
    has_many as has_many,
    is_costly as is_costly,
    parse_result as parse_result,
    without_later_fields as without_later_fields,
)
from ._breaker import Ticket as Ticket
from ._calls import Calls as Calls
from ._deadlines import (
    Deadline as Deadline,
    DeadlineActor as DeadlineActor,
    Deadlines as Deadlines,
    DeadlineTimer as DeadlineTimer,
)
from ._era import (
    ASK as ASK,
    QUIRK as QUIRK,
    Era as Era,
    era_after_failure as era_after_failure,
    era_of as era_of,
    first_era as first_era,
)
from ._health import (
    Condition as Condition,
    Health as Health,
    HealthStatus as HealthStatus,
    Ladder as Ladder,
    Verdict as Verdict,
)
from ._latency import Latency as Latency
from ._parking import seconds_to_retry as seconds_to_retry
from ._retry import (
    NoRetry as NoRetry,
    Retries as Retries,
    asked_to_wait as asked_to_wait,
    is_repeatable_call as is_repeatable_call,
    is_transient as is_transient,
)
from ._versions import (
    check_handshake_version as check_handshake_version,
    incompatibility as incompatibility,
    is_modern as is_modern,
    offered_versions as offered_versions,
)
