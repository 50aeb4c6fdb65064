"""Read and dump configurations in the form of Claude, Cursor and others.

Start with `load_config` and `dump_config`. `load_config` blocks its thread, and may ask a person for inputs. Nothing
here writes a file or starts a server.
"""

from __future__ import annotations

from ._dump import dump_config as dump_config
from ._file import (
    Content as Content,
    JsonObject as JsonObject,
    bad as bad,
    child as child,
    decode as decode,
    did_you_mean as did_you_mean,
    file_name as file_name,
    found as found,
    json_problem as json_problem,
    nearest as nearest,
    permission_warnings as permission_warnings,
    read_bytes as read_bytes,
)
from ._inputs import Ask as Ask, Input as Input
from ._keys import WITH_EFFECT as WITH_EFFECT, is_unsupported as is_unsupported
from ._load import (
    Entry as Entry,
    check_overrides as check_overrides,
    load_config as load_config,
    load_entries as load_entries,
    load_servers as load_servers,
)
from ._programs import name_of as name_of
