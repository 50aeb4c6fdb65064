"""Sources of servers: files, directories and tables.

Programs pass sources to `open_servers`, which reads them in threads. This room uses the readers in ``formats``.
"""

from __future__ import annotations

from ._directory import DirectorySource as DirectorySource
from ._file import FileSource as FileSource
from ._postgres import PostgresSource as PostgresSource
from ._sqlite import SqliteSource as SqliteSource
from ._stamps import stamp_of as stamp_of
from ._table import TableSource as TableSource
