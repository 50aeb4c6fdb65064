"""The field: how clients of MCP servers behave when a server, a network or a program fails.

``faults.toml`` says what a user may expect of each fault; it is written before a client is run. ``clients.toml`` says
what is compared. A scenario (`scenarios`) plays a fault to one client (`engine`, ``driver.py``, ``drivers/``). The
verdicts are kept in ``results.json``, from which the page ``docs/design/field.md`` is written (`page`).
"""
