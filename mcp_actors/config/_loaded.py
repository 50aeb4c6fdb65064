"""The result of `load_config`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from attrs import field, frozen

from .._errors import ConfigError
from ._server import ServerConfig


def _frozen(failed: Mapping[str, ConfigError]) -> Mapping[str, ConfigError]:
    return MappingProxyType(dict(failed))


@frozen
class LoadedConfig:
    """The content of a configuration: the valid servers, and an error for each of the others.

    Attributes:
        servers: the servers in the order of the file, including disabled ones.
        errors: one `ConfigError` for each invalid entry, in the order of the file; or a single one for the whole file,
            which has no servers then.
        warnings: messages about keys without effect, and about risks.
        source: the absolute path of the file, or ``"a mapping"``.
        failed: the same errors by the name of the server, or by `source` for the whole file.
        required: the names in `failed` whose entries say that the server is required for the start of a group.
    """

    servers: tuple[ServerConfig, ...]
    errors: tuple[ConfigError, ...] = ()
    warnings: tuple[str, ...] = ()
    source: str = field(default="a mapping", kw_only=True)
    failed: Mapping[str, ConfigError] = field(factory=dict, converter=_frozen, kw_only=True, repr=False)
    required: frozenset[str] = field(default=frozenset(), kw_only=True, repr=False)
