"""The gateway: one MCP server for many clients."""
