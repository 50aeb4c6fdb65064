"""The public names of tools: unique over all servers, and acceptable to every model provider.

A public name is 1 to 64 of the characters ``A-Z a-z 0-9 _ -``. A server's own names know no such limits, so some must
be changed, and a change can make two of them equal. Whatever could mean more than one tool therefore ends in a short
hash of the server's and the tool's real names:

- a name in which a character was replaced, or which was shortened;
- a name of a server whose name holds ``__`` or ends in ``_``, which would blur the border between server and tool;
- a name that looks as if it ended in such a hash;
- names of the set at hand that are still equal (possible with a template that blurs the border): all of them, so that
  the plain form means none.

With the default template the name thus depends on the server's and the tool's name alone (unless two hashes collide):
it does not change when other servers come or go, and no server can take a name that means another's tool. Nothing
depends on the order in which tools became known.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable
from string import Formatter
from typing import Final

from ..._errors import ConfigError

DEFAULT_NAMING: Final = "mcp__{server}__{tool}"
"""The template of public names, unless another is given."""

MAX_LENGTH: Final = 64  # characters: the tightest limit of the large model providers' tool names

_SEPARATOR: Final = "__"
_HASH_LENGTH: Final = 8  # hexadecimal digits
_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9_-]")
_LOOKS_HASHED: Final = re.compile(rf".*_[0-9a-f]{{{_HASH_LENGTH}}}", re.DOTALL)

ToolKey = tuple[str, str]
"""A server's configured name and a tool's name as that server calls it."""


def public_name(server: str, tool: str, naming: str = DEFAULT_NAMING) -> str:
    """Return the public name of one tool, as far as it can be told without knowing the others.

    With the default template this is the name that `assign_names` gives (but for colliding hashes).

    Args:
        server: the server's configured name.
        tool: the tool's name as the server calls it.
        naming: the template; ``{server}`` and ``{tool}`` are replaced. Default ``"mcp__{server}__{tool}"``.

    Raises:
        ConfigError: `naming` is no such template.
    """
    check_naming(naming)
    return base_name(server, tool, naming)


def base_name(server: str, tool: str, naming: str) -> str:
    """Return what `public_name` does, for a template that was checked already."""
    return _plain(server, tool, naming) or hashed_name(server, tool, naming)


def assign_names(tools: Iterable[ToolKey], naming: str = DEFAULT_NAMING) -> dict[ToolKey, str]:
    """Return a public name for every tool; no two tools get the same one.

    Args:
        tools: the tools as ``(server, tool)``; repeated ones count once.
        naming: the template; ``{server}`` and ``{tool}`` are replaced. Default ``"mcp__{server}__{tool}"``.

    Returns:
        The names, in the order of `tools`. Which name a tool gets does not depend on that order.

    Raises:
        ConfigError: `naming` is no such template.
    """
    check_naming(naming)
    keys = list(dict.fromkeys(tools))
    names = {key: base_name(*key, naming) for key in keys}
    attempts: Counter[ToolKey] = Counter()
    # A plain name never looks hashed, so a group of equal names is all plain or all hashed. Plain ones are hashed;
    # equal hashes (one chance in four thousand millions, or a server's malice) are drawn again.
    while colliding := _colliding(names):
        for key in colliding:
            names[key] = hashed_name(*key, naming, attempts[key])
            attempts[key] += 1
    return names


def _colliding(names: dict[ToolKey, str]) -> list[ToolKey]:
    uses = Counter(names.values())
    return [key for key, name in names.items() if uses[name] > 1]


def check_naming(naming: object) -> None:
    """Refuse a template from which no legal, distinct names can be made.

    Raises:
        ConfigError: it has no ``{tool}``, another field, or a character that a public name cannot have.
    """
    if not isinstance(naming, str):
        raise _bad_naming(f"naming is a {type(naming).__name__}; give a str such as {DEFAULT_NAMING!r}")
    remedy = "use {tool}, {server} and the characters A-Z a-z 0-9 _ -, for example 'mcp__{server}__{tool}'"
    try:
        pieces = list(Formatter().parse(naming))
    except ValueError as exc:
        raise _bad_naming(f"naming={naming!r} cannot be parsed ({exc}); {remedy}") from None
    fields = [field for _, field, _, _ in pieces if field is not None]
    if unknown := sorted({*fields} - {"server", "tool"}):
        raise _bad_naming(f"naming={naming!r} has the unknown field {{{unknown[0]}}}; {remedy}")
    if "tool" not in fields:
        raise _bad_naming(f"naming={naming!r} has no {{tool}}, so all tools of a server would have one name; {remedy}")
    literal = "".join(text for text, _, _, _ in pieces)
    if _ILLEGAL.search(literal) or any(spec or conversion for _, _, spec, conversion in pieces):
        raise _bad_naming(f"naming={naming!r} contains characters that a tool's name cannot have; {remedy}")


def _bad_naming(message: str) -> ConfigError:
    return ConfigError(message, path="naming")


def _plain(server: str, tool: str, naming: str) -> str | None:
    """Return the name without a hash, or None if it could mean another tool too."""
    name = naming.format(server=server, tool=tool)
    blurred = _SEPARATOR in server + "_"
    legal = 0 < len(name) <= MAX_LENGTH and not _ILLEGAL.search(name)
    return name if legal and not blurred and not _LOOKS_HASHED.fullmatch(name) else None


def hashed_name(server: str, tool: str, naming: str, attempt: int = 0) -> str:
    """Return the name with a hash at its end; another `attempt` gives another hash."""
    # JSON keeps the parts apart whatever they hold.
    identity = json.dumps([server, tool, attempt] if attempt else [server, tool])
    digest = hashlib.sha256(identity.encode("ascii")).hexdigest()[:_HASH_LENGTH]
    readable = _ILLEGAL.sub("_", naming.format(server=server, tool=tool))
    return f"{readable[: MAX_LENGTH - 1 - _HASH_LENGTH]}_{digest}"
