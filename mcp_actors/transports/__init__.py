"""Connect to a server by any of the transports.

`open_link` opens a `Link` to a server, and `open_exchange` the way to its authorization server. The other names are for
requests and their answers, for the end of a connection and what a server left behind, for masking, for the
capacity and the certificates of a group, and for servers in this process.

`servers` connects through it; `bridge` and `testing` use the parts for servers in this process, `cli` uses `Masker` and
`open_exchange`, and `gateway` splits the lines of its clients with it. They import only these names, and `gateway` the
handshake from `socket`. The files here use `config`, `auth` and single files of layer 0, and import neither the kernel
nor the catalogue. `stdio` and `http` use the shared files here and do not know each other; `socket` uses the pipes of
`stdio`; ``_open``, above them, imports all three.
"""

from __future__ import annotations

from .. import _sdk as _sdk  # before anything that imports the SDK
from ._credentials import Masker as Masker
from ._exchange import (
    CancelLine as CancelLine,
    ContextReader as ContextReader,
    MessageReader as MessageReader,
    Messages as Messages,
    MessageWriter as MessageWriter,
    OutgoingLine as OutgoingLine,
    Pipe as Pipe,
    Stream as Stream,
    Unasked as Unasked,
)
from ._in_process import SHUTDOWN_GRACE as SHUTDOWN_GRACE, ElsewhereServer as ElsewhereServer, lowlevel as lowlevel
from ._link import (
    MAY_HAVE_ACTED as MAY_HAVE_ACTED,
    OURS as OURS,
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
