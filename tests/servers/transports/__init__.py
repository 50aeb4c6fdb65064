"""The tests of the transports: how a server is reached, and how that ends."""
