"""Start a server process, and talk to it over its pipes.

Only `transports` itself uses it. It uses the other files there, but nothing of `http`.
"""

from __future__ import annotations

from ._link import open_stdio_link as open_stdio_link
