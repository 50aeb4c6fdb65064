"""What a server can do, and what is said of what it cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from ..._errors import NotSupported

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import ServerCapabilities

__all__ = ["Supported", "require", "supported_by"]


@frozen(kw_only=True)
class Supported:
    """What a server says that it can do.

    Attributes:
        tools: it has tools.
        tools_list_changed: it tells when their list changes.
        resources: it has resources.
        resources_list_changed: it tells when their list changes.
        resources_subscribe: it tells when one changes, to whoever subscribes to it.
        prompts: it has prompts.
        prompts_list_changed: it tells when their list changes.
        completions: it completes the arguments of prompts and of resource templates.
        logging: it sends log messages.
    """

    tools: bool
    tools_list_changed: bool
    resources: bool
    resources_list_changed: bool
    resources_subscribe: bool
    prompts: bool
    prompts_list_changed: bool
    completions: bool
    logging: bool


def supported_by(capabilities: ServerCapabilities) -> Supported:
    """Return what a server's capabilities say, as booleans."""
    tools, resources, prompts = capabilities.tools, capabilities.resources, capabilities.prompts
    return Supported(
        tools=tools is not None,
        tools_list_changed=tools is not None and tools.list_changed is True,
        resources=resources is not None,
        resources_list_changed=resources is not None and resources.list_changed is True,
        resources_subscribe=resources is not None and resources.subscribe is True,
        prompts=prompts is not None,
        prompts_list_changed=prompts is not None and prompts.list_changed is True,
        completions=capabilities.completions is not None,
        logging=capabilities.logging is not None,
    )


def require(capability: str, client: Client, server: str, operation: str) -> None:
    """Make sure that the server can do something before it is asked to.

    Args:
        capability: which of `Supported`.
        client: the session.
        server: the name of the server.
        operation: what is to be asked, in the words of the protocol.

    Raises:
        NotSupported: it cannot.
    """
    if getattr(supported_by(client.server_capabilities), capability):
        return
    raise NotSupported(
        f"server {server!r}: does not offer {capability.replace('_', '.', 1)}, so {operation} was not sent; "
        f"look at info.supports.{capability} first",
        server=server,
        capability=capability,
    )
