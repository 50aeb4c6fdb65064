"""From bytes to messages: lines, limits, pace and streams.

For all transports. It uses nothing else of `transports`.
"""

from __future__ import annotations

from ._exchange import (
    CLOSED as CLOSED,
    NOTICE_WAIT as NOTICE_WAIT,
    CancelLine as CancelLine,
    Exchange as Exchange,
    Json as Json,
    OutgoingLine as OutgoingLine,
    Pipe as Pipe,
    Receive as Receive,
    Unanswered as Unanswered,
    Unasked as Unasked,
    exchange_lines as exchange_lines,
    notice_of as notice_of,
    wait_for_answer as wait_for_answer,
)
from ._lines import (
    SKIPPED as SKIPPED,
    LineSplitter as LineSplitter,
    LongLine as LongLine,
    PartialMessage as PartialMessage,
)
from ._messages import (
    BYTE_ORDER_MARK as BYTE_ORDER_MARK,
    INITIALIZED as INITIALIZED,
    LOGGED as LOGGED,
    SkippedMessages as SkippedMessages,
    alone as alone,
    parse_json as parse_json,
    parse_message as parse_message,
    to_message as to_message,
)
from ._pace import (
    ANSWERS_A_SECOND as ANSWERS_A_SECOND,
    ANSWERS_AT_ONCE as ANSWERS_AT_ONCE,
    Bucket as Bucket,
    ReadingPace as ReadingPace,
)
from ._request_table import (
    LAST_ID as LAST_ID,
    Report as Report,
    RequestTable as RequestTable,
    comparable_id as comparable_id,
)
from ._server_requests import (
    CANCELLED as CANCELLED,
    HELD_BYTES as HELD_BYTES,
    SHOWN as SHOWN,
    ServerRequests as ServerRequests,
)
from ._streams import (
    ContextReader as ContextReader,
    MessageReader as MessageReader,
    Messages as Messages,
    MessageWriter as MessageWriter,
    Stream as Stream,
)
from ._unreadable import (
    Excerpt as Excerpt,
    answer_over_limit as answer_over_limit,
    is_unreadable as is_unreadable,
    refuse_unreadable as refuse_unreadable,
    unreadable_answer as unreadable_answer,
)
from ._values import (
    Excess as Excess,
    MessageLimits as MessageLimits,
    TooManyValues as TooManyValues,
    ValueCounter as ValueCounter,
)
