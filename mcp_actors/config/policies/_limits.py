"""Limits on the lists and messages that a server may send."""

from __future__ import annotations

from typing import Final

import attrs

from ..._misuse import explained
from .. import _validators as check

_DEEPEST: Final = 200
"""Levels. Code that reads schemas is recursive, here and in other packages; deeper schemas would raise in it."""

_check_depth: Final = check.count(1, f"give a whole number from 1 to {_DEEPEST}", highest=_DEEPEST)


@explained
@attrs.frozen(kw_only=True)
class Limits:
    """How much one server may list, and how many messages it may send on its own.

    A broken or hostile server may send anything. A tool that exceeds a limit is left out, and a warning is logged. If a
    server lists too many tools, its whole listing fails with `LimitExceeded`, because nothing says which ones matter.
    The defaults are far above what servers for models list.

    The length of one message is limited by the transport: ``Stdio(max_line_bytes=…)``, ``Http(max_body_bytes=…)``.

    Args:
        max_tools: tools that it may list, including those that a `ToolFilter` hides. Default 1000.
        max_list_bytes: bytes of JSON of a whole list, all its pages together; each list (tools, resources, resource
            templates, prompts) has this limit on its own. Default 8388608 (8 MiB).
        max_text_chars: characters of each text of a listed item, such as a tool's name, title or description, and of
            a cursor. Default 16384.
        max_schema_bytes: bytes of JSON of each other part of a listed item, such as a tool's input schema, output
            schema, annotations, icons or meta. Default 262144 (256 KiB).
        max_schema_depth: nesting depth of objects and arrays in each of these parts, 1 to 200. Default 64.
        max_message_values: JSON values in one message, approximately (commas, colons, opening brackets and braces
            outside of strings are counted, so a key is a value too). A response that has more fails its request; over
            stdio and HTTP with SSE, any other message that has more ends the connection. Default 250000.
        max_notifications: notifications accepted per second. A server that sends more than six times as many is read
            no faster than that, nor faster than 12 KiB a second for each. Default 500.
        max_requests: requests of its own (sampling, elicitation, roots, pings) that may be unanswered, and that it may
            send at once. It earns thirty more per second, and ten for each request that it receives. A server that
            sends more loses its connection. Default 500.

    Raises:
        ConfigError: a value is out of its range.
    """

    max_tools: int = attrs.field(default=1000, validator=check.at_least_one)
    max_list_bytes: int = attrs.field(default=8 * 1024 * 1024, validator=check.at_least_one)
    max_text_chars: int = attrs.field(default=16 * 1024, validator=check.at_least_one)
    max_schema_bytes: int = attrs.field(default=256 * 1024, validator=check.at_least_one)
    max_schema_depth: int = attrs.field(default=64, validator=_check_depth)
    max_message_values: int = attrs.field(default=250_000, validator=check.at_least_one)
    max_notifications: int = attrs.field(default=500, validator=check.at_least_one)
    max_requests: int = attrs.field(default=500, validator=check.at_least_one)
