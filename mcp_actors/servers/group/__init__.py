"""Many servers as one: open them, supervise them, and view them together.

``_open`` opens and closes a group, ``_group`` is what programs get, ``_facts`` has its members that only read, which
the views of other event loops have too, ``_tree`` has the supervision tree, the roster and the limits, ``_lifecycle``
and ``_loop`` carry out changes, and ``_memory`` keeps the tools for the next run.

The face of ``servers`` and the bridge use this room; the rooms of a single server do not import it. It uses ``ref``,
``connection``, ``record``, and the files of ``servers`` for sources, deadlines, rules, eras and admission, but no
``requests``. It starts and stops the actors of servers, and writes the roster, what is wanted of a server, and parts of
its record: the state, by the events of its actors, and the remembered tools. Worker threads read and write the files of
the ``catalog_store``. It reads configurations, may receive signals, which cancel the block and end it with
`SystemExit`, and puts a filter on the loggers of the package.
"""

from __future__ import annotations

from ._facts import AnyServer as AnyServer, GroupFacts as GroupFacts
from ._group import ServerGroup as ServerGroup
from ._lifecycle import ReloadSummary as ReloadSummary, in_words as in_words
from ._open import open_servers as open_servers
