"""Start a server process, and talk to it over its pipes.

`open_stdio_link` does all of it, and ``_open`` of `transports` calls it. The files find the program, confine it in a
sandbox, start, watch and stop the process, and read and write its three pipes. `socket` uses the pipes, too. They use
the shared files of `transports`, `config` and single files of layer 0, but nothing of `http` and `auth`.
"""

from __future__ import annotations

from ._link import open_stdio_link as open_stdio_link
from ._pipes import LinesLink as LinesLink
