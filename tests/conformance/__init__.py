"""MCP's conformance suite, against this library: the suite plays servers, our client plays its part in each scenario.

``nox -s conformance`` runs all that two revisions of the protocol require; the tests here run one scenario of each.
"""
