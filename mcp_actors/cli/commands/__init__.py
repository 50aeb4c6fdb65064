"""The subcommands of the command line.

Only the parser imports this room. It offers the signatures of the commands with their help; a signature imports the
code behind it when the command is run, because that code imports the SDK, which takes most of a second.
"""

from __future__ import annotations

from ._signatures import EXAMPLES as EXAMPLES, call as call, check as check
