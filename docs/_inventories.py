"""Link to the documentation of other projects without a network.

``inventories/*.txt`` list the names that our pages link to: the address of the documentation in the first line, then a
name, its kind and its page in each line. A name that is missing there is a warning, which fails the build.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent
_HEADER: Final = (
    "# Sphinx inventory version 2\n# Project: {}\n# Version: \n# The remainder of this file is compressed using zlib.\n"
)


def mapping() -> dict[str, tuple[str, str]]:
    """Write each list as an inventory of Sphinx, and return the value of ``intersphinx_mapping``."""
    built = _HERE / "_build" / "inventories"
    built.mkdir(parents=True, exist_ok=True)
    found: dict[str, tuple[str, str]] = {}
    for source in sorted((_HERE / "inventories").glob("*.txt")):
        address, *names = source.read_text().splitlines()
        objects = [f"{name} {kind} 1 {page} -\n" for name, kind, page in map(str.split, names)]
        inventory = built / f"{source.stem}.inv"
        inventory.write_bytes(_HEADER.format(source.stem).encode() + zlib.compress("".join(objects).encode()))
        found[source.stem] = (address, str(inventory))
    return found
