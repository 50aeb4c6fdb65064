"""Programs that type checkers accept."""
