"""The mutants of a source file: copies of its syntax tree with one change each.

A number c becomes c + 1 (an integer), 2 c (a float) or 1 (zero). A comparison, `and`, `or`, `not`, `+`, `-`, `*`, `/`,
and the call of a minimum or a maximum become their nearest relative. Left out is what changes no result: docstrings
and other texts, f-strings, annotations, `raise` statements, and the argument `stacklevel` of a warning.
"""

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PAIRS = [(ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn)]
PAIRS += [(ast.And, ast.Or), (ast.Add, ast.Sub), (ast.Mult, ast.Div)]
RELATIVES = {old: new for a, b in PAIRS for old, new in ((a, b), (b, a))}
NAMES = [("min", "max"), ("amin", "amax"), ("minimum", "maximum"), ("argmin", "argmax")]
CALLED = {old: new for a, b in NAMES for old, new in ((a, b), (b, a))}


@dataclass(frozen=True)
class Mutant:
    """One change of a file.

    `key` names it by the text of its line and its number among the mutants of such lines. So the key stays as other
    lines change. `scope` is the first line of the outermost function around it, 0 outside of functions.
    """

    module: str
    line: int
    column: int
    before: str
    after: str
    key: str
    scope: int
    number: int
    text: str


def mutants(path: Path, module: str) -> list[Mutant]:
    """All mutants of a file, by the order in its syntax tree."""
    source = path.read_text()
    lines = source.splitlines()
    seen: Counter[str] = Counter()
    found = []
    for number, (old, new, scope) in enumerate(_changes(ast.parse(source))):
        text = lines[old.lineno - 1].strip()
        digest = hashlib.sha256(text.encode()).hexdigest()[:10]
        key = f"{digest}:{seen[digest]}"
        seen[digest] += 1
        before, after = ast.unparse(old), ast.unparse(new)
        found.append(Mutant(module, old.lineno, old.col_offset, before, after, key, scope, number, text))
    return found


def mutated(source: str, mutant: Mutant) -> ast.Module:
    """The syntax tree of a source with one change."""
    tree = ast.parse(source)
    old, new, _ = list(_changes(tree))[mutant.number]

    class Replace(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return ast.copy_location(new, old) if node is old else self.generic_visit(node)

    return ast.fix_missing_locations(Replace().visit(tree))


def _changes(node: ast.AST, scope: int = 0) -> Iterator[tuple[ast.expr, ast.expr, int]]:
    if isinstance(node, ast.Raise | ast.JoinedStr) or (isinstance(node, ast.keyword) and node.arg == "stacklevel"):
        return
    if isinstance(node, ast.FunctionDef) and not scope:
        scope = min(each.lineno for each in (node, *node.decorator_list))
    for new in _relatives(node):
        yield node, new, scope
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _changes(child, scope)


def _relatives(node: ast.AST) -> Iterator[ast.stmt | ast.expr]:
    match node:
        case ast.Constant(value=c) if type(c) in (int, float):
            yield ast.Constant(1 if c == 0 else c + 1 if type(c) is int else 2 * c)
        case ast.Compare():
            for i, op in enumerate(node.ops):
                yield ast.Compare(
                    node.left, [*node.ops[:i], RELATIVES[type(op)](), *node.ops[i + 1 :]], node.comparators
                )
        case ast.BoolOp():
            yield ast.BoolOp(RELATIVES[type(node.op)](), node.values)
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.BinOp() if type(node.op) in RELATIVES and not (_text(node.left) or _text(node.right)):
            yield ast.BinOp(node.left, RELATIVES[type(node.op)](), node.right)
        case ast.AugAssign() if type(node.op) in RELATIVES and not _text(node.value):
            yield ast.AugAssign(node.target, RELATIVES[type(node.op)](), node.value)
        case ast.Call(func=ast.Name(id=name)) if name in CALLED:
            yield ast.Call(ast.Name(CALLED[name], ast.Load()), node.args, node.keywords)
        case ast.Call(func=ast.Attribute(attr=name)) if name in CALLED:
            yield ast.Call(ast.Attribute(node.func.value, CALLED[name], ast.Load()), node.args, node.keywords)


def _text(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        return _text(node.left) or _text(node.right)
    return isinstance(node, ast.JoinedStr | ast.List | ast.Tuple) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
