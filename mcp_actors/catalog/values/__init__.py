"""JSON values: canonical text, hash, and immutable forms.

Imported by everything in the folder around it, and by the servers for a hash. This room uses nothing of that folder.
"""

from __future__ import annotations

from ._canonical import canonical_text as canonical_text, digest as digest
from ._frozen import FrozenDict as FrozenDict, freeze as freeze, thaw as thaw
