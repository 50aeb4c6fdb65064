"""From bytes to messages: lines, limits, pace and streams.

For all transports. It uses nothing else of `transports`.
"""

from __future__ import annotations

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
    with_result_type as with_result_type,
)
from ._pace import (
    ANSWERS_A_SECOND as ANSWERS_A_SECOND,
    ANSWERS_AT_ONCE as ANSWERS_AT_ONCE,
    Bucket as Bucket,
    ReadingPace as ReadingPace,
)
from ._request_table import (
    FIRST_ID as FIRST_ID,
    LAST_ID as LAST_ID,
    RequestTable as RequestTable,
    comparable_id as comparable_id,
)
from ._server_requests import (
    CANCELLED as CANCELLED,
    HELD_BYTES as HELD_BYTES,
    SHOWN as SHOWN,
    ServerRequests as ServerRequests,
)
from ._streams import MessageReader as MessageReader, OpenStreams as OpenStreams, Stream as Stream
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
