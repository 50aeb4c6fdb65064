"""Several servers as one thing: the door to them, their tree, and what is theirs together.

Nothing of one server knows that it is in a group: only the door of `servers` imports this folder.
"""

from __future__ import annotations

from ._configs import Configured as Configured
from ._group import ServerGroup as ServerGroup
from ._open import open_servers as open_servers

__all__ = ["Configured", "ServerGroup", "open_servers"]
