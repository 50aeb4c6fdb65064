"""Tools that know nothing of servers: tasks, exchanges, turns, the words of a problem.

Every room may come in. This one imports nothing of `servers`.
"""

from __future__ import annotations

from ._background import Background as Background, open_background as open_background
from ._closing import ClosingOrder as ClosingOrder
from ._exchange import (
    ConnectionOver as ConnectionOver,
    Exchange as Exchange,
    current_exchange as current_exchange,
    open_exchange as open_exchange,
)
from ._problems import problem_of as problem_of
from ._turns import Turns as Turns

__all__ = [
    "Background",
    "ClosingOrder",
    "ConnectionOver",
    "Exchange",
    "Turns",
    "current_exchange",
    "open_background",
    "open_exchange",
    "problem_of",
]
