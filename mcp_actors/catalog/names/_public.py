"""Public names of tools, valid for every model provider.

A public name has 1 to 64 characters out of ``A-Z a-z 0-9 _ -``. The names that servers give to their tools, and the
configured names of servers, have no such limits. So some must be changed, and then two may be equal. A name that could
mean more than one tool therefore ends in a short hash of the server's configured name and the tool's own name:

- a name in which a character was replaced, or which was shortened;
- a name of a tool whose server's name contains ``__`` or ends in ``_``, so that it is not clear where the
  tool's own name begins;
- a name that looks as if it ended in such a hash;
- all names that are still equal to each other (possible with a template that hides where the tool's name begins).

So with the default template a name depends only on the names of the server and the tool (unless two hashes are equal):
it does not change when other servers are added or removed, and no server can take the name of another server's tool.
Nothing depends on the order in which tools are listed.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from json.encoder import encode_basestring_ascii as _quoted
from string import Formatter
from typing import Final

from ..._errors import ConfigError

DEFAULT_NAMING: Final = "mcp__{server}__{tool}"
"""The default template of public names."""

MAX_LENGTH: Final = 64  # characters: the tightest limit of the large model providers' tool names

_SEPARATOR: Final = "__"
_HASH_LENGTH: Final = 8  # hexadecimal digits
_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9_-]")
_LOOKS_HASHED: Final = re.compile(rf".*_[0-9a-f]{{{_HASH_LENGTH}}}", re.DOTALL)

ToolKey = tuple[str, str]
"""The configured name of a server, and its own name of a tool."""


def public_name(server: str, tool: str, naming: str = DEFAULT_NAMING) -> str:
    """Return the public name of one tool, regardless of other tools.

    With the default template this is the name from `assign_names`, unless two hashes are equal.

    Args:
        server: the server's configured name.
        tool: the server's own name of the tool.
        naming: the template; ``{server}`` and ``{tool}`` are replaced. Default ``"mcp__{server}__{tool}"``.

    Raises:
        ConfigError: `naming` is not a valid template.
    """
    check_naming(naming)
    return base_name(server, tool, naming)


def base_name(server: str, tool: str, naming: str) -> str:
    """Do as `public_name` does, for a template that has been checked."""
    return plain_name(server, tool, naming) or hashed_name(server, tool, naming)


def assign_names(tools: Iterable[ToolKey], naming: str = DEFAULT_NAMING) -> dict[ToolKey, str]:
    """Return a unique public name for every tool.

    Args:
        tools: the tools as ``(server, tool)``; duplicates are ignored.
        naming: the template; ``{server}`` and ``{tool}`` are replaced. Default ``"mcp__{server}__{tool}"``.

    Returns:
        The names in the order of `tools`. The name of a tool does not depend on that order.

    Raises:
        ConfigError: `naming` is not a valid template.
    """
    check_naming(naming)
    return distinct({key: base_name(*key, naming) for key in dict.fromkeys(tools)}, naming)


def distinct(names: dict[ToolKey, str], naming: str) -> dict[ToolKey, str]:
    """Return the names with another hash in each of those that are equal; see `base_name`."""
    attempts: Counter[ToolKey] = Counter()
    names = dict(names)
    # A plain name never looks hashed, so equal names are either all plain or all hashed. Plain names get a hash, and
    # equal hashes (one chance in four billion, or a malicious server) get another one. All of the equal names change,
    # not all but one: otherwise a server could take over the plain name of another server's tool.
    while colliding := _colliding(names):
        for key in colliding:
            names[key] = hashed_name(*key, naming, attempts[key])
            attempts[key] += 1
    return names


def _colliding(names: dict[ToolKey, str]) -> list[ToolKey]:
    uses = Counter(names.values())
    return [key for key, name in names.items() if uses[name] > 1]


def check_naming(naming: object) -> None:
    """Refuse a template that cannot make valid, distinct names.

    Raises:
        ConfigError: it has no ``{tool}``, an unknown field, or a character that a public name cannot have.
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


def plain_name(server: str, tool: str, naming: str) -> str | None:
    """Return the name without a hash, or None if it could also mean another tool."""
    name = naming.format(server=server, tool=tool)
    blurred = _SEPARATOR in server + "_"
    legal = 0 < len(name) <= MAX_LENGTH and not _ILLEGAL.search(name)
    return name if legal and not blurred and not _LOOKS_HASHED.fullmatch(name) else None


def hashed_name(server: str, tool: str, naming: str, attempt: int = 0) -> str:
    """Return the name with a hash at its end, which depends on `attempt`."""
    # JSON separates the parts unambiguously, whatever they contain. `json.dumps` would write the same in 2 µs more.
    identity = f"[{_quoted(server)}, {_quoted(tool)}{f', {attempt}' if attempt else ''}]"
    digest = hashlib.sha256(identity.encode("ascii")).hexdigest()[:_HASH_LENGTH]
    readable = _ILLEGAL.sub("_", naming.format(server=server, tool=tool))
    return f"{readable[: MAX_LENGTH - 1 - _HASH_LENGTH]}_{digest}"
