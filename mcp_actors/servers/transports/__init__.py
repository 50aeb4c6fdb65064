"""Connect to a server over stdio, over HTTP or in this process.

The rest of `servers` uses only these names.
"""

from __future__ import annotations

from ._in_process import ElsewhereServer as ElsewhereServer, lowlevel as lowlevel
from ._link import (
    MAY_HAVE_ACTED as MAY_HAVE_ACTED,
    Link as Link,
    Obituary as Obituary,
)
from ._open import open_exchange as open_exchange, open_link as open_link
from .credentials import Masker as Masker
from .wire import (
    CLOSED as CLOSED,
    INITIALIZED as INITIALIZED,
    CancelLine as CancelLine,
    ContextReader as ContextReader,
    Exchange as Exchange,
    Json as Json,
    MessageReader as MessageReader,
    Messages as Messages,
    MessageWriter as MessageWriter,
    OutgoingLine as OutgoingLine,
    Pipe as Pipe,
    Report as Report,
    RequestTable as RequestTable,
    Stream as Stream,
    Unasked as Unasked,
    comparable_id as comparable_id,
    is_unreadable as is_unreadable,
    refuse_unreadable as refuse_unreadable,
)
