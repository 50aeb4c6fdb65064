"""Run random programs on Erlang/OTP's supervisor and on ours, and compare what they did."""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path
from typing import Final

from attrs import evolve

from .compare import Difference, compare, shrink
from .erlang import PATIENCE, Otp, missing, open_otp
from .generate import draw_program
from .ours import run_program
from .terms import Program, parse_recordings, parse_term

HERE: Final = Path(__file__).parent
SIDE_BY_SIDE: Final = 200
MOST_SHOWN: Final = 5


def main() -> int:
    """Run it; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.kernel.otp", description=__doc__)
    parser.add_argument("--programs", type=int, default=5000, metavar="N", help="how many (default: %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().getrandbits(32), help="the seed of all programs"
    )
    parser.add_argument("--first", type=int, default=0, metavar="NUMBER", help="the number of the first program")
    parser.add_argument("--program", metavar="TERM", help="run this one program")
    parser.add_argument("--record", nargs="*", metavar="FILE", help="record the programs of files again (default: all)")
    flags = parser.parse_args()
    if reason := missing():
        parser.error(reason)
    with open_otp() as otp:
        if flags.record is not None:
            for file in map(Path, flags.record or sorted(HERE.glob("*.txt"))):
                record(otp, file)
            return 0
        if flags.program is not None:
            return show(otp, compare(otp, [parse_term(flags.program)]))
        return run(otp, flags.seed, range(flags.first, flags.first + flags.programs))


def run(otp: Otp, seed: int, numbers: range) -> int:
    """Draw, run and compare programs; return the exit code."""
    print(f"{len(numbers)} programs, seed {seed}", flush=True)
    began = time.monotonic()
    found: list[Difference] = []
    for start in numbers[::SIDE_BY_SIDE]:
        some = numbers[start - numbers.start :][:SIDE_BY_SIDE]
        programs: list[Program] = [draw_program(seed, number) for number in some]
        for difference in compare(otp, programs):
            number = some[programs.index(difference.program)]
            print(f"program {number} differs: nox -s otp -- --seed {seed} --first {number} --programs 1", flush=True)
            found.append(difference)
    print(f"{len(found)} of {len(numbers)} programs differ ({time.monotonic() - began:.0f} s)")
    return show(otp, found)


def show(otp: Otp, found: list[Difference]) -> int:
    """Print differences, each with the smallest program that shows it; return the exit code."""
    for difference in found[:MOST_SHOWN]:
        print(f"\n{shrink(otp, difference)}")
    return 1 if found else 0


def record(otp: Otp, file: Path) -> None:
    """Replace the events of all recordings in a file by those of the Erlang/OTP that is installed, or of ours."""
    text = file.read_text(encoding="utf-8")
    head = text[: text.index('\n{"')]
    old = parse_recordings(text)
    begun = [None if recording.name.endswith("(here)") else otp.submit(recording.program) for recording in old]
    new = [
        evolve(recording, events=run_program(recording.program) if future is None else future.result(PATIENCE))
        for recording, future in zip(old, begun, strict=True)
    ]
    file.write_text("\n\n".join([head.rstrip("\n"), *map(str, new)]) + "\n", encoding="utf-8")
    changed = [recording.name for recording, before in zip(new, old, strict=True) if recording != before]
    print(f"{file.name}: {len(new)} recordings, {len(changed)} changed", *changed, sep="\n    ")


if __name__ == "__main__":
    sys.exit(main())
