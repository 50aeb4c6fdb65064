"""Read the configuration files of Claude, Cursor, VS Code and others.

Programs call `load_config`; the command line and ``sources`` also use its parts. This room may use everything else in
`mcp_actors.config`, and nothing else there uses this room.
"""

from __future__ import annotations

from ._inputs import Ask as Ask, Input as Input
from ._load import LoadedConfig as LoadedConfig, load_config as load_config, load_servers as load_servers
from ._sections import name_of as name_of
from .file import file_name as file_name, read_bytes as read_bytes
