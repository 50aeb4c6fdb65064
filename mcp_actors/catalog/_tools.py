"""One tool of one server, immutable (`CatalogTool`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import attrs

from .values import freeze


class ListedTool(Protocol):
    """A tool as a server lists it: the attributes of ``mcp.types.Tool`` that the catalogue keeps."""

    @property
    def name(self) -> str:
        """The server's own name of the tool."""

    @property
    def title(self) -> str | None:
        """A name for people."""

    @property
    def description(self) -> str | None:
        """A description for the model."""

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """The JSON schema of the arguments."""

    @property
    def output_schema(self) -> Mapping[str, Any] | None:
        """The JSON schema of structured results."""

    @property
    def annotations(self) -> Any:
        """The server's hints: a pydantic model, a mapping or None."""

    @property
    def meta(self) -> Mapping[str, Any] | None:
        """The ``_meta`` of the listing."""


def _frozen_schema(value: Mapping[str, Any]) -> Mapping[str, Any]:
    frozen: Mapping[str, Any] = freeze(value)
    return frozen


def _frozen_or_none(value: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return None if value is None else _frozen_schema(value)


def wire_annotations(annotations: Any) -> Mapping[str, Any] | None:
    """Return annotations by their names on the wire (``readOnlyHint``), without those that are not set."""
    if annotations is None or isinstance(annotations, Mapping):
        return annotations
    dumped: dict[str, Any] = annotations.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dumped


def _task_support(tool: ListedTool) -> str:
    """Return a tool's support for tasks, which only some versions of the protocol define."""
    if isinstance(tool, CatalogTool):
        return tool.task_support
    execution = getattr(tool, "execution", None)
    return getattr(execution, "task_support", None) or "forbidden"


@attrs.frozen(kw_only=True, repr=False)
class CatalogTool:
    """A tool of a server, with the public name by which the group calls it.

    It is deeply immutable: its schemas, annotations and meta are dicts and lists that refuse every change. They can be
    passed to `json.dumps` and to the SDKs of model providers; ``copy.deepcopy`` makes an ordinary, mutable copy.

    Attributes:
        server: the configured name of the server.
        name: the server's own name of the tool.
        public_name: the unique name in the group: 1 to 64 of the characters ``A-Z a-z 0-9 _ -``.
        title: a name for people, or None.
        description: a description for the model, or None.
        input_schema: the JSON schema of the arguments.
        output_schema: the JSON schema of structured results, or None.
        annotations: the server's hints by their wire names (``readOnlyHint`` …), or None. Hints are not verified.
        meta: the ``_meta`` of the listing, or None.
        task_support: whether the tool can run as a task (MCP 2025-11-25): ``"forbidden"``, ``"optional"`` or
            ``"required"``. A tool that requires it cannot be called through this package.
        available: False while the server is not serving, for example because it reconnects.
        deferred: True while the tool is only remembered from an earlier run. A call waits for the connection, and fails
            if the server no longer lists the tool.
    """

    server: str
    name: str
    public_name: str
    title: str | None = None
    description: str | None = None
    input_schema: Mapping[str, Any] = attrs.field(converter=_frozen_schema, hash=False)
    output_schema: Mapping[str, Any] | None = attrs.field(default=None, converter=_frozen_or_none, hash=False)
    annotations: Mapping[str, Any] | None = attrs.field(default=None, converter=_frozen_or_none, hash=False)
    meta: Mapping[str, Any] | None = attrs.field(default=None, converter=_frozen_or_none, hash=False)
    task_support: str = "forbidden"
    available: bool = True
    deferred: bool = False

    @classmethod
    def from_listing(
        cls, server: str, tool: ListedTool, public_name: str, *, available: bool = True, deferred: bool = False
    ) -> CatalogTool:
        """Return the catalogue's copy of a listed tool; it shares nothing with `tool`.

        Args:
            server: the configured name of the server.
            tool: the listed tool: an ``mcp.types.Tool``, another `CatalogTool`, or anything with the same attributes.
            public_name: its public name (see `assign_names`).
            available: whether the server is serving.
            deferred: whether the tool is only remembered from an earlier run.
        """
        return cls(
            server=server,
            name=tool.name,
            public_name=public_name,
            title=tool.title,
            description=tool.description,
            input_schema=tool.input_schema,
            output_schema=tool.output_schema,
            annotations=wire_annotations(tool.annotations),
            meta=tool.meta,
            task_support=_task_support(tool),
            available=available,
            deferred=deferred,
        )

    def __repr__(self) -> str:
        away = ", deferred" if self.deferred else "" if self.available else ", unavailable"
        return f"<CatalogTool {self.public_name!r}: {self.name!r} of server {self.server!r}{away}>"
