"""Connect to an HTTP endpoint, over streamable HTTP or SSE.

This file only gathers the public names, and imports each at its first use. Only ``_open`` of `transports` uses this
package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._exports import fetch_later

if TYPE_CHECKING:
    from ._client import authorization_client as authorization_client, make_client as make_client, oauth_of as oauth_of
    from ._link import open_link_over_http as open_link_over_http
    from ._sse import SseLink as SseLink
    from ._streamable import StreamableHttpLink as StreamableHttpLink
else:  # hidden from type checkers, which would otherwise accept every misspelled name
    __getattr__ = fetch_later(
        globals(),
        {
            "._client": "authorization_client make_client oauth_of",
            "._link": "open_link_over_http",
            "._sse": "SseLink",
            "._streamable": "StreamableHttpLink",
        },
    )
