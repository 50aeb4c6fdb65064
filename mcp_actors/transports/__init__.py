"""Connect to a server by any of the transports.

This file only gathers names. `open_link` opens a `Link` to a server. `open_exchange` opens a client of the
server's authorization server (OAuth).

`stdio` and `http` are independent, `socket` uses the pipes of `stdio`, and ``_open`` imports all three.
"""

from __future__ import annotations

from .. import _sdk as _sdk  # before anything that imports the SDK
from ._credentials import Masker as Masker
from ._exchange import (
    CancelLine as CancelLine,
    ClosingStream as ClosingStream,
    ContextReader as ContextReader,
    MessageReader as MessageReader,
    Messages as Messages,
    MessageWriter as MessageWriter,
    OutgoingLine as OutgoingLine,
    Pipe as Pipe,
    Unasked as Unasked,
)
from ._in_process import SHUTDOWN_GRACE as SHUTDOWN_GRACE, ElsewhereServer as ElsewhereServer, lowlevel as lowlevel
from ._link import (
    MAY_HAVE_ACTED as MAY_HAVE_ACTED,
    OUTCOME_MEMBER as OUTCOME_MEMBER,
    Certificates as Certificates,
    ConnectionOver as ConnectionOver,
    Link as Link,
    Obituary as Obituary,
)
from ._logs import install_filters as install_filters
from ._messages import (
    INITIALIZED as INITIALIZED,
    Excerpt as Excerpt,
    LineSplitter as LineSplitter,
    LongLine as LongLine,
    PartialMessage as PartialMessage,
    is_unreadable as is_unreadable,
    not_parsed as not_parsed,
)
from ._open import Capacity as Capacity, Turn as Turn, open_exchange as open_exchange, open_link as open_link
from ._request_table import (
    CLOSED as CLOSED,
    PROGRESS as PROGRESS,
    WITHDRAWN as WITHDRAWN,
    Json as Json,
    Report as Report,
    RequestTable as RequestTable,
    RequestUnderWay as RequestUnderWay,
    comparable_id as comparable_id,
)
