"""One session with a server.

It sends requests as the protocol version wants them, and passes on what the server asks and reports. Its callers are
requests and connections. It may touch the links, the policy and the basics below; no record and no mailbox.
"""

from __future__ import annotations

from ._rounds import MAX_ROUNDS as MAX_ROUNDS, carry_on as carry_on
from ._session import Callbacks as Callbacks, Session as Session
from ._spans import RequestSpan as RequestSpan, is_traced as is_traced
