"""One scenario of each kind, so that every run of the tests proves that the client of the suite works."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from ..forkserver import interpreter
from .client import ON_ASYNCIO
from .suite import CLIENT, play

pytestmark = pytest.mark.usefixtures("npm_packages")


def client() -> str:
    """Return the command of the client, in a fork."""
    return CLIENT.replace(shlex.quote(sys.executable), interpreter())


@pytest.mark.parametrize(
    ("scenario", "revision", "successes"),
    [
        ("auth/basic-cimd", "2025-11-25", 13),
        ("auth/scope-step-up", "2026-07-28", 28),
        ("auth/authorization-server-migration", "2026-07-28", 28),
        ("auth/enterprise-managed-authorization", "2026-07-28", 8),
        ("sep-2322-client-request-state", "2026-07-28", 5),  # what a server asks back
    ],
)
def test_a_scenario_is_passed(scenario: str, revision: str, successes: int, tmp_path: Path) -> None:
    outcome = play(scenario, revision, tmp_path, client=client())
    assert outcome.complaints == ()
    assert outcome.checks["SUCCESS"] >= successes


def test_a_program_on_asyncio_passes_it_too(tmp_path: Path) -> None:
    """In the scenario about the catalogue, which keeps all keywords of a schema there as here."""
    outcome = play("json-schema-2020-12-preservation", "2026-07-28", tmp_path, client=f"{client()} {ON_ASYNCIO}")
    assert outcome.complaints == ()
    assert outcome.checks["SUCCESS"] >= 8


def test_a_client_that_does_nothing_passes_nothing_though_the_suite_finds_nothing_wrong(tmp_path: Path) -> None:
    outcome = play("initialize", "2025-11-25", tmp_path, client="true")
    assert outcome.complaints == ()
    assert not outcome.passed
