"""Run `scripted_server` from the file that Python has compiled it to. A program itself is compiled at each start."""

from __future__ import annotations

from scripted_server import main  # type: ignore[import-not-found]  # it is in the folder of this program

main()
