"""Connect to a server over stdio, over HTTP or in this process.

The rest of `servers` uses only these names.
"""

from __future__ import annotations

from ._in_process import ElsewhereServer as ElsewhereServer, lowlevel as lowlevel
from ._link import (
    MAY_HAVE_ACTED as MAY_HAVE_ACTED,
    DirectPipe as DirectPipe,
    DirectPosts as DirectPosts,
    Link as Link,
    Obituary as Obituary,
)
from ._open import open_exchange as open_exchange, open_link as open_link
from .credentials import Masker as Masker
from .wire import Stream as Stream, is_unreadable as is_unreadable, refuse_unreadable as refuse_unreadable
