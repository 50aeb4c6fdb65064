"""Lines that type checkers refuse."""
