"""The subcommands: their signatures and help, and the code that each of them runs.

Only the parser of the command line imports this room. It offers the signatures; a signature imports the code behind it
when the command is run, because that code imports the SDK, which takes most of a second.
"""

from __future__ import annotations

from ._signatures import EXAMPLES as EXAMPLES, call as call, check as check

__all__ = ["EXAMPLES", "call", "check"]
