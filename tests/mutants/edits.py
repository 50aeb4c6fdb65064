"""List the small changes that a module allows, and draw some of them.

Each one replaces the text of one expression or statement, so the rest of the module stays as it is. What never runs is
left alone: annotations, docstrings, imports, protocols, and the assertions that are for a type checker.
"""

from __future__ import annotations

import ast
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

COMPARED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
COMPUTED: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}

UNSEEN: Final = (ast.Import, ast.ImportFrom, ast.Assert, ast.Global, ast.Nonlocal, ast.pattern)
"""Nodes without a change."""

FOR_TYPES: Final = {"Literal", "NewType", "Protocol", "TYPE_CHECKING", "TypeAlias", "TypeVar", "cast", "overload"}
"""Names that mark code for a type checker."""


class Edit(NamedTuple):
    """A change of a module.

    Attributes:
        path: the module.
        line: where the text begins.
        start: the offset of the first byte of the text.
        end: the offset behind it.
        now: the new text.
    """

    path: Path
    line: int
    start: int
    end: int
    now: str

    def apply(self, source: bytes) -> bytes:
        """Return the source of the module with the change."""
        return source[: self.start] + self.now.encode() + source[self.end :]

    def lines(self) -> tuple[str, str]:
        """Return the changed lines, joined by blanks, as they are and with the change."""
        source = self.path.read_bytes()
        first, last = source.rfind(b"\n", 0, self.start) + 1, source.find(b"\n", self.end)
        texts = source[first:last], source[first : self.start] + self.now.encode() + source[self.end : last]
        was, now = (" ".join(text.decode().split()) for text in texts)
        return was, now


def draw(modules: Sequence[Path], seed: str, count: int) -> list[Edit]:
    """Return changes of as many lines: which lines, and which changes of them, follows from the seed."""
    choice = random.Random(seed)
    by_line: defaultdict[tuple[Path, int], list[Edit]] = defaultdict(list)
    for path in modules:
        for edit in edits(path):
            by_line[path, edit.line].append(edit)
    lines = [*by_line]
    choice.shuffle(lines)
    drawn = (edit for line in lines for edit in _first_valid(choice.sample(by_line[line], len(by_line[line]))))
    return [*islice(drawn, count)]


def _first_valid(found: Sequence[Edit]) -> list[Edit]:
    for edit in found:
        with suppress(SyntaxError):
            compile(edit.apply(edit.path.read_bytes()), str(edit.path), "exec")
            return [edit]
    return []


def edits(path: Path) -> Iterator[Edit]:
    """Yield all changes of a module."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node, now in _changes(ast.parse(source), source.decode(), inside=False):
        start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        if source[start : start + 4] != b"elif":
            yield Edit(path, node.lineno, start, end, now)


def _changes(node: ast.AST, source: str, *, inside: bool) -> Iterator[tuple[Any, str]]:
    """Yield the nodes at and below this one that can be replaced, each with a text that may take its place.

    Args:
        node: where to begin.
        source: the whole module.
        inside: whether the node belongs to a function.
    """
    if isinstance(node, UNSEEN) or _is_for_types(node):
        return
    yield from _of_operator(node)
    yield from _of_condition(node)
    yield from _of_value(node, source)
    if isinstance(node, ast.stmt):
        yield from _of_statement(node, inside=inside)
    if isinstance(node, ast.JoinedStr):
        return  # the places in it are not known before Python 3.12
    inside = (inside and not isinstance(node, ast.ClassDef)) or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    for name, value in ast.iter_fields(node):
        if name not in {"annotation", "returns"}:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _changes(child, source, inside=inside)


def _is_for_types(node: ast.AST) -> bool:
    """Return True for what only a type checker reads, and for a docstring."""
    marks: list[ast.expr] = []
    match node:
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.ClassDef(bases=marks) | ast.FunctionDef(decorator_list=marks):
            pass
        case ast.If(test=mark) | ast.AnnAssign(annotation=mark) | ast.Call(func=mark) | ast.Subscript(value=mark):
            marks = [mark]
    names = {ast.unparse(mark).partition("[")[0].rpartition(".")[2] for mark in marks}
    return not FOR_TYPES.isdisjoint(names)


def _of_operator(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    match node:
        case ast.Compare(left=left, ops=ops, comparators=values):
            for number, op in enumerate(ops):
                changed = [*ops[:number], COMPARED[type(op)](), *ops[number + 1 :]]
                yield node, f"({ast.unparse(ast.Compare(left, changed, values))})"
        case ast.BoolOp(op=op, values=values):
            yield node, f"({ast.unparse(ast.BoolOp(ast.And() if isinstance(op, ast.Or) else ast.Or(), values))})"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in COMPUTED:
            yield node, f"({ast.unparse(ast.BinOp(left, COMPUTED[type(op)](), right))})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, f"({ast.unparse(operand)})"
        case ast.Call(args=[first, second, *_]) if not {ast.Starred} & {type(first), type(second)}:
            yield node, ast.unparse(ast.Call(node.func, [second, first, *node.args[2:]], node.keywords))


def _of_condition(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield test, f"(not ({ast.unparse(test)}))"
        case ast.comprehension(ifs=tests):
            yield from ((test, f"(not ({ast.unparse(test)}))") for test in tests)


def _of_value(node: ast.AST, source: str) -> Iterator[tuple[ast.expr, str]]:
    match node:
        case ast.Constant(value=bool() as flag):
            yield node, str(not flag)
        case ast.Constant(value=int() as number):
            yield node, str(number + 1)
        case ast.Constant(value=float() as number):
            yield node, repr(number * 2 or 1.0)
        case ast.Constant(value=str() | bytes()) | ast.JoinedStr():
            added = 'b"XX"' if isinstance(getattr(node, "value", ""), bytes) else '"XX"'
            yield node, f"({added} + {ast.get_source_segment(source, node)})"


def _of_statement(node: ast.stmt, *, inside: bool) -> Iterator[tuple[ast.stmt, str]]:
    match node:
        case ast.Expr() | ast.AugAssign() | ast.Delete() | ast.Raise() | ast.Break() | ast.Continue():
            yield node, "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
            yield node, "pass"
        case ast.Return(value=value) if value is not None and ast.unparse(value) != "None":
            yield node, "return None"
    simple = (ast.Return, ast.Pass, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    if inside and not isinstance(node, simple):
        yield node, "return"
