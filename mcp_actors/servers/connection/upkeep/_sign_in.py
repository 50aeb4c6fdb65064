"""Let a person sign in to a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...._collapse import caused_by
from ...._errors import ConfigError
from ....auth import SignInFailed, SignInRequired, open_browser, sign_in
from ....config import Http, OAuth, Sse
from ...transports import open_exchange

if TYPE_CHECKING:
    from ...._errors import ConnectFailed
    from ....config import ServerConfig, SignInCallback
    from ...record import ServerRecord

__all__ = ["ask_to_sign_in", "sign_in_to"]


async def sign_in_to(config: ServerConfig, show: SignInCallback | None, required: object = None) -> None:
    """Let a person sign in, and store the tokens for the next connection.

    Args:
        config: the configuration of the server.
        show: shows the URL to the person. None: as configured, or else by the user's browser.
        required: the error that requires the sign-in, if there is one.

    Raises:
        SignInFailed: there are no tokens.
        ConfigError: this server has no sign-in, or the store cannot be used.
        ConnectFailed: the client cannot be created.
    """
    challenge = required.challenge if isinstance(required, SignInRequired) else None
    async with open_exchange(config) as exchange:
        show = show or exchange.oauth.on_sign_in or open_browser
        await sign_in(config.name, exchange, show, challenge=challenge)


async def ask_to_sign_in(record: ServerRecord, required: ConnectFailed | None) -> bool:
    """Ask a person by the configured callback, if a connect needs that. Return False if it does not, or must not.

    A person who has refused is not asked again by a restart.

    Raises:
        SignInRequired: the sign-in has failed.
    """
    transport = record.config.transport
    if not isinstance(required, SignInRequired) or not record.life.may_ask or not isinstance(transport, Http | Sse):
        return False
    if not isinstance(transport.auth, OAuth) or transport.auth.on_sign_in is None:
        return False
    record.life.may_ask = False
    record.life.note_failure(required)  # meanwhile only those wait for the server who require it
    try:
        await sign_in_to(record.config, None, required)
    except (SignInFailed, ConfigError) as error:
        failure = caused_by(SignInRequired.because(record.config.name, str(error)), error)
    else:
        return True
    raise failure
