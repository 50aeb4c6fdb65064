"""Records of other packages about our connections show no credential."""

from __future__ import annotations

import logging

import pytest

from mcp_actors.transports._logs import discreet, install_filters

from .test_masker import masker


@pytest.fixture(autouse=True)
def filters() -> None:
    install_filters()


@pytest.mark.parametrize(
    "name",
    [
        *("httpx2", "httpcore2.connection", "httpcore2.http11", "httpcore2.http2"),
        *("httpcore2.proxy", "httpcore2.socks"),
        *("client", "mcp.client.client", "mcp.client.streamable_http"),
        *("mcp.shared.dispatcher", "mcp.shared.jsonrpc_dispatcher"),
    ],
)
def test_a_record_of_a_library_is_masked_within_our_connections_only(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, name)
    logger = logging.getLogger(name)
    logger.debug("of the program: %s", "t0ken-of-ours\n")
    with discreet(masker("t0ken-of-ours")):
        logger.debug("of ours: %s", "t0ken-of-ours\n")
    theirs, ours = (record.getMessage() for record in caplog.records)
    assert theirs == "of the program: t0ken-of-ours\n"
    assert ours.isprintable()
    assert "t0ken" not in ours


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("httpcore2.http11", "receive_response_headers.complete"),
        ("httpcore2.http11", "send_request_headers.failed"),
        ("httpcore2.http2", "receive_response_headers.complete"),
        ("httpcore2.http2", "send_request_headers.failed"),
        ("mcp.client.streamable_http", "Received session ID"),
        ("mcp.client.streamable_http", "Connecting to StreamableHTTP endpoint"),
    ],
)
def test_a_record_with_a_header_or_a_session_id_is_dropped_within_our_connections(
    name: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, name)
    with discreet(masker("t0ken-of-ours")):
        logging.getLogger(name).debug("%s: abc", words)
    assert caplog.records == []
    logging.getLogger(name).debug("%s: abc", words)
    assert [record.getMessage() for record in caplog.records] == [f"{words}: abc"]
