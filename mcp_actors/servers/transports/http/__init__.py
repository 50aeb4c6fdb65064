"""Connect to an HTTP endpoint, over streamable HTTP or SSE.

Only `transports` itself uses it. It uses the link, `wire` and `credentials`, but nothing of `stdio`.
"""

from __future__ import annotations

from ._client import exchange_of as exchange_of, make_client as make_client, oauth_of as oauth_of
from ._failures import MAY_HAVE_ACTED as MAY_HAVE_ACTED
from ._link import open_link_over_http as open_link_over_http
from ._sse import SseLink as SseLink
from .streamable import StreamableHttpLink as StreamableHttpLink
