"""The store of remembered catalogues: what servers listed, kept in files from one run to the next.

Imported by the groups of servers only. This room uses the pins of the folder around it.
"""

from __future__ import annotations

from ._store import (
    CatalogStore as CatalogStore,
    RememberedCatalog as RememberedCatalog,
    default_directory as default_directory,
)
