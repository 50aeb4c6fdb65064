"""Read a configuration file into data, within bounds of size.

Nothing here knows what the data means. Imported by the readers around it, and by the command line for the bytes of a
file. This room uses ``_places`` for its messages.
"""

from __future__ import annotations

from ._size import check_numbers as check_numbers, check_size as check_size
from ._source import (
    Content as Content,
    decode as decode,
    file_name as file_name,
    permission_warnings as permission_warnings,
    read_bytes as read_bytes,
)
from ._syntax import JsonObject as JsonObject, parse as parse, repeated_keys as repeated_keys
