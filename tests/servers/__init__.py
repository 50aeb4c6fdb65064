"""The tests of the servers: one connection, one actor, a group of them."""
