"""How much a server may send unasked for, before it is told that this is too much."""

from __future__ import annotations

from typing import Final

import attrs

from .. import _validators as check

_DEEPEST: Final = 200
"""Levels. What reads schemas is recursive, in this package and in others; deeper ones would end in its errors."""

_check_count: Final = check.count(1, "give a whole number of 1 or more")
_check_depth: Final = check.count(1, f"give a whole number from 1 to {_DEEPEST}", highest=_DEEPEST)


@attrs.frozen(kw_only=True)
class Limits:
    """How much one server may list, and how often it may speak up.

    A server decides what it sends, and a broken or hostile one may send anything. A tool that is over a limit is left
    out and told; a server with too many tools has none that could be chosen, so its listing fails with `LimitExceeded`.
    The defaults are far above what servers that are meant for models list.

    (How long one message may be is a property of its transport: ``Stdio(max_line_bytes=…)``,
    ``Http(max_body_bytes=…)``.)

    Args:
        max_tools: how many tools it may list, those included that a `ToolFilter` hides. Default 1000.
        max_list_bytes: how many bytes of JSON a whole list may take, all its pages together: that of the tools, of the
            resources, of their templates, of the prompts, each. Default 8388608 (8 MiB).
        max_text_chars: how many characters a tool's name, title and description may have, each; so of what else is
            listed. A cursor, too. Default 16384.
        max_schema_bytes: how many bytes of JSON a tool's input schema, output schema, annotations, icons and meta may
            take, each; so of what else is listed. Default 262144 (256 KiB).
        max_schema_depth: how many objects and arrays may be within each other in each of these, 1 to 200. Default 64.
        max_message_values: about how many JSON values one message may have (commas, brackets and braces outside of
            strings are counted). An answer that has more fails its request; over stdio, and HTTP with
            SSE, any other message of a server that has more ends the connection. Default 250000.
        max_notifications: how many notifications a second are taken from it. A server that sends more than six
            times as many is read no faster than that, nor faster than 12 KiB a second for each. Default 500.
        max_requests: how many of its own requests (sampling, elicitation, roots, pings) may be unanswered, and how many
            it may send at once. It earns thirty more per second, and ten for each request that it is sent. A server
            that sends more loses its connection. Default 500.

    Raises:
        ConfigError: a value is out of its range.
    """

    max_tools: int = attrs.field(default=1000, validator=_check_count)
    max_list_bytes: int = attrs.field(default=8 * 1024 * 1024, validator=_check_count)
    max_text_chars: int = attrs.field(default=16 * 1024, validator=_check_count)
    max_schema_bytes: int = attrs.field(default=256 * 1024, validator=_check_count)
    max_schema_depth: int = attrs.field(default=64, validator=_check_depth)
    max_message_values: int = attrs.field(default=250_000, validator=_check_count)
    max_notifications: int = attrs.field(default=500, validator=_check_count)
    max_requests: int = attrs.field(default=500, validator=_check_count)
