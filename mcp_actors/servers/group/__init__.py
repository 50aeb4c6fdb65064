"""Many servers as one: open, supervise, change and view them together.

Only this package starts, stops and exchanges actors of servers; packages of a single server do not import this package.
Begin with ``_open`` and the drawing in ``_tree``.
"""

from __future__ import annotations

from ._facts import AnyServer as AnyServer, GroupFacts as GroupFacts
from ._group import ServerGroup as ServerGroup
from ._lifecycle import ReloadSummary as ReloadSummary, in_words as in_words
from ._open import open_servers as open_servers
