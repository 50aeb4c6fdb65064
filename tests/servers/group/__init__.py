"""The tests of groups of servers: the door, the tree, and what is told of all of them."""
