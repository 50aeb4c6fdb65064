"""Messages on their way: mailbox, envelope, and reply.

Imports nothing of the kernel but the detection of deadlocks. The other rooms send with it and take from it.
"""

from __future__ import annotations

from ._envelope import Envelope as Envelope, Holder as Holder
from ._mailbox import (
    MAILBOX_SIZE as MAILBOX_SIZE,
    Accepts as Accepts,
    Mailbox as Mailbox,
    OverflowPolicy as OverflowPolicy,
    Taker as Taker,
    check_mailbox as check_mailbox,
)
from ._messages import (
    Call as Call,
    CallFor as CallFor,
    M as M,
    M_contra as M_contra,
    Message as Message,
    Receives as Receives,
)
from ._reply import Reply as Reply
