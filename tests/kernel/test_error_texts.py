"""An error's text grows with the depth of the tree that it comes up through, and no faster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from mcp_actors.kernel import (
    ActorError,
    ActorStartError,
    ChildSpec,
    RestartLimitReached,
    SupervisorRef,
    open_supervisor,
)

from .workers import Boom, Yard, crash, door_raises, nest

BOOM = Boom('it\'s a "quoted" \\ failure')


def tree(depth: int, *starts: Boom) -> ChildSpec:
    """So many supervisors around a child."""
    spec = Yard().spec("child", *starts)
    for level in range(depth):
        spec = nest(f"level {level:02}", spec, max_restarts=0)
    return spec


async def limit_reached_at(depth: int) -> ActorError:
    """The exception that leaves the block when the child crashes."""
    with door_raises(RestartLimitReached) as caught:
        async with open_supervisor(tree(depth), max_restarts=0) as ref:
            for level in reversed(range(depth)):
                below = ref.child(f"level {level:02}")
                assert isinstance(below, SupervisorRef)
                ref = below
            await crash(ref.child("child"), BOOM)
            await trio.sleep_forever()
    return caught.value


async def not_started_at(depth: int) -> ActorError:
    """The exception that leaves the block when the child does not start."""
    with pytest.raises(ActorStartError) as caught:
        async with open_supervisor(tree(depth, BOOM)):
            pytest.fail("it started")
    return caught.value


@pytest.mark.parametrize("fails", [limit_reached_at, not_started_at])
async def test_an_error_message_grows_linearly_with_the_depth_of_the_tree(
    fails: Callable[[int], Awaitable[ActorError]],
) -> None:
    """B-32: and it still says what happened below, and where."""
    errors = [await fails(depth) for depth in (2, 3, 4, 22)]
    lengths = [len(str(error)) for error in errors]
    step = lengths[1] - lengths[0]
    assert lengths[2] - lengths[1] == step
    assert lengths[3] - lengths[2] == 18 * step
    text = str(errors[-1])
    assert all(f"'level {level:02}'" in text for level in range(22))
    assert text.count(repr(BOOM)) == 1
