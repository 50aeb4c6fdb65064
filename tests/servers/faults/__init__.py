"""The fault matrix: what users see of each way in which a server can misbehave, on each transport.

Every cell of the matrix is one test, decorated with the fault and the transports it proves::

    @fault("killed in a call", "stdio")
    async def test_killed_in_a_call(cell: Cell, tmp_path: Path) -> None:
        async with cell.open(server("faulty")) as ref:
            with cell.fails(ConnectionLost, phase="call", within=PROMPT) as caught:
                await ref.call_tool("crash", {"code": 9})
        assert caught.value.outcome == "unknown"

`matrix.py` lists the cells that must exist and draws the table that ends a test run; `cells.py` is what a test is given
to prove its cell; `test_matrix.py` fails if one was not proven although all of them were to be run.
"""
