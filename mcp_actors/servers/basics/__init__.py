"""Helpers without knowledge of servers: tasks, feeds, time slices, traces, texts.

Every room may come in. This one imports nothing of `servers`.
"""

from __future__ import annotations

from ._background import Background as Background, open_background as open_background
from ._capacity import Capacity as Capacity, Turn as Turn
from ._certificates import Certificates as Certificates
from ._closing import ClosingOrder as ClosingOrder
from ._fan_out import fan_out as fan_out
from ._feed import MAX_WAITING as MAX_WAITING, Feed as Feed
from ._problems import (
    LOGGERS as LOGGERS,
    Shortage as Shortage,
    bad_option as bad_option,
    own_shortage as own_shortage,
    problem_of as problem_of,
    shortage_of as shortage_of,
)
from ._request_trace import (
    ConnectionOver as ConnectionOver,
    RequestTrace as RequestTrace,
    current_trace as current_trace,
    open_trace as open_trace,
)
from ._signals import Signals as Signals, name_of as name_of
from ._time_slice import TimeSlice as TimeSlice, work_clock as work_clock
from ._upkeep import NoThread as NoThread, Upkeep as Upkeep, run_in_thread as run_in_thread
