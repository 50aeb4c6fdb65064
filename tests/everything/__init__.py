"""Every feature of MCP, against the reference server that has them all: ``@modelcontextprotocol/server-everything``.

It is written for Node and speaks the legacy era, over stdio, streamable HTTP and HTTP with SSE. (The servers of the
other tests are written in Python, and speak both eras.)
"""
