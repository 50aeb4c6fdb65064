"""What the tests of the suite share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ..node.packages import NodeMissing
from .suite import CLIENT, Outcome, outcomes, run_client

RunScenario = Callable[..., tuple[int, Outcome]]


@pytest.fixture
def run_scenario(tmp_path: Path) -> RunScenario:
    """Return what runs one scenario of the suite and gives its exit code, and what came of it."""

    def run(name: str, revision: str, *, client: str = CLIENT) -> tuple[int, Outcome]:
        folder = tmp_path / "results"
        with (tmp_path / "log.txt").open("w") as log:
            try:
                exit_code = run_client(["--scenario", name, "--spec-version", revision], folder, log, client=client)
            except NodeMissing as error:
                pytest.fail(str(error), pytrace=False)
        if exit_code:
            print((tmp_path / "log.txt").read_text())
        return exit_code, dict(outcomes(folder))[name]

    return run
