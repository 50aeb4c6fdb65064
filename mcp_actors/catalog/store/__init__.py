"""The store of remembered catalogues.

Imported by the groups of servers only. This room uses the pins of the folder around it.
"""

from __future__ import annotations

from ._store import (
    CatalogStore as CatalogStore,
    RememberedCatalog as RememberedCatalog,
    default_directory as default_directory,
)
