"""Many servers as one: open, supervise, change and view them together.

Only here are actors of servers started, stopped and exchanged; the rooms of a single server do not import this room.
Begin with ``_open`` and the drawing in ``_tree``.
"""

from __future__ import annotations

from ._facts import AnyServer as AnyServer, GroupFacts as GroupFacts
from ._group import ServerGroup as ServerGroup
from ._lifecycle import ReloadSummary as ReloadSummary, in_words as in_words
from ._open import open_servers as open_servers
