"""Run the user's callbacks for requests and notifications of a server.

Only the actor uses it. It uses the record and the rooms below, but no requests and nothing else of the connection.
"""

from __future__ import annotations

from ._open import open_callbacks as open_callbacks
