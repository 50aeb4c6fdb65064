"""Functions and objects of an asyncio program that Trio's side uses.

Middleware, observers, callbacks, value functions, extensions and in-process servers are written for asyncio, so they
run on the event loop. This room wraps each of them for Trio's side, and knows nothing of views or blocks.
"""

from __future__ import annotations

from ._configuration import (
    callbacks_from_loop as callbacks_from_loop,
    config_from_loop as config_from_loop,
    observers_from_loop as observers_from_loop,
)
from ._functions import ServerAsker as ServerAsker, on_loop as on_loop
from ._signals import LoopSignals as LoopSignals
