"""Let a person sign in to a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from .... import auth
from ...._collapse import caused_by
from ...._errors import ConfigError, ConnectFailed
from ...._foreign import Log
from ....auth import SignInFailed, SignInRequired
from ....config import Http, OAuth, Sse
from ....transports import open_exchange

if TYPE_CHECKING:
    from ....config import ServerConfig, SignInCallback
    from ...record import ServerRecord


logger = Log("mcp_actors.servers")


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
        show = show or exchange.oauth.on_sign_in or auth.open_browser
        await auth.sign_in(config.name, exchange, show, challenge=challenge)


async def sign_out_of(config: ServerConfig) -> bool:
    """Revoke and forget the tokens of a server. Return False if there were none.

    Raises:
        ConfigError: this server has no sign-in, or the store cannot be used.
        ConnectFailed: the client cannot be created.
    """
    async with open_exchange(config) as exchange:
        return await auth.sign_out(exchange)


async def is_signed_in(config: ServerConfig) -> bool:
    """Return True if the store has tokens for a server.

    Raises:
        ConfigError, ConnectFailed: as for `sign_out_of`.
    """
    async with open_exchange(config) as exchange:
        return await auth.signed_in(exchange) is not None


def can_ask(record: ServerRecord, required: BaseException | None) -> bool:
    """Return True if an error requires a sign-in, and a person may be asked for it by the configured callback."""
    transport = record.config.transport
    oauth = transport.auth if isinstance(transport, Http | Sse) else None
    asks = isinstance(oauth, OAuth) and oauth.on_sign_in is not None
    if not (asks and record.life.asks_left > 0 and isinstance(required, SignInRequired)):
        return False
    questions = record.opening.questions
    if questions.allowed(trio.current_time()):
        return True
    if questions.to_be_reported():
        problem = "on_sign_in is not called again now (twice within an hour)"
        remedy = f"await servers[{record.config.name!r}].sign_in() asks at once"
        logger.warning("server %r: %s; %s", record.config.name, problem, remedy)
    return False


async def ask_to_sign_in(record: ServerRecord, required: Exception | None) -> bool:
    """Ask a person by the configured callback, if a connect needs that. Return False if it does not, or must not.

    A person who has refused is not asked again by a restart, and no person more than twice an hour (`SignInQuestions`).

    Raises:
        SignInRequired: the sign-in has failed.
    """
    if not can_ask(record, required):
        return False
    assert isinstance(required, SignInRequired)
    asks_left, record.life.asks_left = record.life.asks_left - 1, 0
    record.opening.questions.note(trio.current_time())
    record.life.note_question(required)
    try:
        with record.calls.deadlines.asking():
            await sign_in_to(record.config, None, required)
    except (SignInFailed, ConfigError) as error:
        failure = caused_by(SignInRequired.because(record.config.name, str(error)), error)
    except ConnectFailed:
        raise
    except Exception as error:
        # A defect of the callback. A restart would not ask again, and hide it behind "not signed in".
        problem = f"on_sign_in raised {type(error).__name__}; see the cause of this error"
        failure = caused_by(SignInRequired.because(record.config.name, problem), error)
    else:
        record.life.asks_left = asks_left
        return True
    raise failure
