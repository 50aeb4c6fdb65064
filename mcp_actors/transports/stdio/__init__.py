"""Start a server process, and talk to it over its pipes.

`open_stdio_link` does everything, for ``_open`` of `transports`; `socket` uses the pipes too.
"""

from __future__ import annotations

from ._link import open_stdio_link as open_stdio_link
from ._pipes import LinesLink as LinesLink
