"""Draw random programs: each from a seed and its number, so that it can be drawn again.

A program has no action whose effect OTP leaves open, or for which ours is documented to differ
(``docs/design/supervision.md``): see `Draw.calls` and `Draw.together`.
"""

from __future__ import annotations

import random
from typing import Any, Final

from attrs import define, field

from .terms import Program, Term

STRATEGIES: Final = ["one_for_one", "one_for_all", "rest_for_one"]
REASONS: Final = ["normal", "shutdown", ("shutdown", "x"), "boom"]
HANG_MS: Final = 20
"""Long enough in virtual time, short enough in real time: such a child never stops before."""


@define
class Draw:
    """Draws one program.

    Attributes:
        random: the source.
        fails: whether restarts fail. If so, no change is requested while a restart may be waiting for its next attempt,
            but for new children: there ours differs from OTP (see "In a group whose restart is not over").
        homes: the ids of all children, each with its supervisor.
        supervisors: the ids of all supervisors below the root.
        number: of ids that were drawn.
    """

    random: random.Random
    fails: bool = field(init=False)
    homes: dict[str, str] = field(factory=dict)
    supervisors: list[str] = field(factory=list)
    number: int = 0

    def program(self) -> Program:
        """Draw a program."""
        self.fails = self.random.random() < 0.6
        flags = self.flags()
        specs = self.specs("root", flags, depth=0)
        actions: list[Term] = []
        for _ in range(self.random.randint(1, 8)):
            actions += [self.action(), "look"]
        if self.random.random() < 0.2:
            actions[self.random.randrange(len(actions) // 2) * 2] = ("at_once", self.at_once())
        return flags, specs, actions

    # --- the tree ---------------------------------------------------------------------------------------------------

    def flags(self) -> dict[str, Term]:
        """Draw a supervisor's flags. The long period is never over while a program runs."""
        flags: dict[str, Term] = {
            "strategy": self.random.choice(STRATEGIES),
            "intensity": self.random.choice([0, 1, 2, 3, 3, 5, 9]),
            "period": 5 if self.random.random() < 0.03 else 3600,
        }
        if self.random.random() < 0.35:
            flags["auto_shutdown"] = self.random.choice(["any_significant", "all_significant"])
        return flags

    def specs(self, home: str, flags: dict[str, Term], depth: int) -> list[dict[str, Term]]:
        """Draw the children of a supervisor."""
        least, most = (1, 4) if depth == 0 else (0, 3)
        return [self.spec(home, flags, depth) for _ in range(self.random.randint(least, most))]

    def spec(self, home: str, flags: dict[str, Term], depth: int) -> dict[str, Term]:
        """Draw a child."""
        is_supervisor = depth < 2 and self.random.random() < (0.35, 0.25)[depth]
        self.number += 1
        id = f"{'s' if is_supervisor else 'w'}{self.number}"
        self.homes[id] = home
        spec: dict[str, Term] = {"id": id}
        restart = self.random.choice(["permanent", "permanent", "transient", "temporary"])
        if restart != "permanent":
            spec["restart"] = restart
            if "auto_shutdown" in flags and self.random.random() < 0.6:
                spec["significant"] = "true"
        self.add_plan(spec, is_supervisor)
        if is_supervisor:
            self.supervisors.append(id)
            own = self.flags()
            spec |= {"type": "supervisor", "flags": own, "children": self.specs(id, own, depth + 1)}
        else:
            self.add_stop(spec)
        return spec

    def add_plan(self, spec: dict[str, Term], is_supervisor: bool) -> None:
        """Draw what the starts of a child do."""
        if self.random.random() < 0.5:
            return
        plans = ["ok", "ok", "ignore", *(["fail", "fail"] if self.fails else []), *([] if is_supervisor else ["wait"])]
        first = ["ok"] * 12 + ["ignore", "fail" if self.fails else "ok", "ok" if is_supervisor else "wait"]
        later = [self.random.choice(plans) for _ in range(self.random.randint(0, 3))]
        spec["init"] = [self.random.choice(first), *later]

    def add_stop(self, spec: dict[str, Term]) -> None:
        """Draw how a worker stops."""
        kind = self.random.random()
        if kind < 0.15:
            spec |= {"stop": "hang", "shutdown": self.random.choice([HANG_MS, "brutal_kill"])}
        elif kind < 0.4:
            spec |= {"stop": "asked", "shutdown": "infinity"}
        elif kind < 0.5:
            spec["shutdown"] = self.random.choice(["brutal_kill", "infinity"])

    # --- actions ----------------------------------------------------------------------------------------------------

    def action(self) -> Term:
        """Draw one action, or several at the same time."""
        kind = self.random.random()
        if kind < 0.45:
            return self.death()
        if kind < 0.65:
            return self.call()
        if kind < 0.8:
            return ("together", self.together())
        if kind < 0.82:
            return ("sleep", 7000) if self.random.random() < 0.1 else self.death()
        trigger = self.death() if self.random.random() < 0.7 else self.call()
        return ("during", trigger, self.together(self.home(trigger)))

    def home(self, action: Term) -> str:
        """Return the supervisor that an action is about."""
        match action:
            case ("kill", id) | ("exit", id, _):
                return self.homes[id]
            case ("on", home, _):
                return str(home)
        return "root"

    def death(self, home: str | None = None) -> Term:
        """Draw the end of a worker, of one supervisor if that has any."""
        workers = [id for id in self.homes if id not in self.supervisors]
        near = [id for id in workers if self.homes[id] == home]
        id = self.random.choice(near or workers or list(self.homes))
        return ("kill", id) if self.random.random() < 0.5 else ("exit", id, self.random.choice(REASONS))

    def call(self, home: str | None = None, *, alone: bool = True) -> Term:
        """Draw a call.

        Args:
            home: the supervisor; None draws one.
            alone: False if its supervisor is busy. A stop is not drawn then: ours does not always wait for its turn.
        """
        home = home or self.random.choice(["root", *self.supervisors])
        verbs = ["start_child"] if self.fails and not alone else ["start_child", "restart_child", "delete_child"]
        verb = self.random.choice([*verbs, "stop_child", "stop_child"] if alone else verbs)
        known = [id for id in self.homes if self.homes[id] == home]
        argument: Any = self.random.choice(known or ["w0"])
        if verb == "start_child":
            argument = {"id": argument} if known and self.random.random() < 0.3 else self.spec(home, {}, depth=1)
        return (verb, argument) if home == "root" else ("on", home, (verb, argument))

    def together(self, home: str | None = None) -> list[Term]:
        """Draw two or three actions at the same time: mostly deaths, mostly on one supervisor."""
        home = home or self.home(self.death())
        actions = []
        for _ in range(self.random.choice([2, 2, 2, 3])):
            near = home if self.random.random() < 0.7 else None
            actions.append(self.death(near) if self.random.random() < 0.8 else self.call(near, alone=False))
        return actions

    def at_once(self) -> list[Term]:
        """Draw the ends of two children of one supervisor."""
        home = self.home(self.death())
        deaths = [self.death(home) for _ in range(10)]
        return list({death[1]: death for death in deaths if self.homes[death[1]] == home}.values())[:2]


def draw_program(seed: int, number: int) -> Program:
    """Draw a program."""
    return Draw(random.Random(f"{seed}/{number}")).program()
