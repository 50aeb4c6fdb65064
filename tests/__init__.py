"""The tests of mcp_actors; they mirror the package."""
