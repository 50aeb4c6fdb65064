"""Run the command line: ``python -m mcp_actors`` is ``mcp-actors``.

``attach`` starts a daemon by the path of this file: ``python -P …/mcp_actors/__main__.py serve``. In an archive of
shiv, ``-m`` would not find this package.
"""

from __future__ import annotations

import os
import sys

root: str = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
if not __package__ and root not in sys.path:
    # Before ``site-packages``, whose versions of dependencies may differ.
    places: list[int] = [place for place, path in enumerate(sys.path) if path.endswith("-packages")]
    sys.path.insert(min(places, default=len(sys.path)), root)

from mcp_actors.cli import main  # noqa: E402  # found only now

main()
