"""The tests of the kernel: actors without MCP."""
