"""Small changes of meaning to a source file, one place each: a comparison, a sign, a constant, a statement left out.

What is not changed, because no test could or should notice: annotations, docstrings, decorators, imports, the wording
of errors and warnings, the tests of `while` loops, and keywords that only say where or how (`KEYWORDS_KEPT`).
"""

import ast
import copy
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

COMPARISONS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
ARITHMETIC: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
FUNCTIONS = {
    "min": "max", "amin": "amax", "argmin": "argmax", "minimum": "maximum", "any": "all", "floor": "ceil",
    "zeros": "ones", "zeros_like": "ones_like", "new_zeros": "new_ones", "mean": "sum", "median": "mean", "cos": "sin",
}  # fmt: skip
FUNCTIONS |= {after: before for before, after in FUNCTIONS.items() if after not in FUNCTIONS}
SYMMETRIC = set("equal gcd hasattr isinstance max maximum min minimum mse_loss print range union zip".split())
KEYWORDS_KEPT = {
    "strict",  # of zip: lengths that differ are a mistake of ours, not of the input
    "device", "non_blocking", "pin_memory", "memory_format",  # where things lie, of which a CPU has one place
    "rank", "n_ranks", "pin",  # which process of how many: here there is one
    "encoding", "newline", "stacklevel", "category", "indent",  # the form of texts
}  # fmt: skip
MESSAGES = {"warn", "warning", "info", "debug", "note", "field"}  # calls whose arguments are text, or a dataclass's


@dataclass(frozen=True)
class Mutant:
    """One change: the bytes from `start` to `end` of a file, in the function around them, become `after`."""

    file: str
    function: str
    kind: str
    line: int
    end_line: int
    start: int
    end: int
    before: str
    after: str

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"

    def applied(self, source: str) -> str:
        """The source with this change in it."""
        data = source.encode()
        return (data[: self.start] + self.after.encode() + data[self.end :]).decode()


def draw(
    sources: dict[str, str], n: int, seed: int, is_wanted: Callable[[Mutant], bool] = lambda mutant: True
) -> list[Mutant]:
    """n mutants of these files, every place as likely as any other.

    A mutant's lot is a hash of its text and the seed, so that a change elsewhere in the source leaves it drawn or not.
    """
    by_lot = {}
    for file, source in sources.items():
        n_alike: Counter[str] = Counter()
        for mutant in mutants_of(file, source):
            text = f"{seed} {file} {mutant.function} {mutant.kind} {mutant.before} {mutant.after}"
            n_alike[text] += 1
            if is_wanted(mutant):
                by_lot[hashlib.sha256(f"{text} {n_alike[text]}".encode()).hexdigest()] = mutant
    in_order = (by_lot[lot] for lot in sorted(by_lot))
    return list(islice((mutant for mutant in in_order if _is_python(mutant.applied(sources[mutant.file]))), n))


def mutants_of(file: str, source: str) -> list[Mutant]:
    """All changes to one file, in the order of its text."""
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    mutants = []
    for node, function, kind, after in _changes(ast.parse(source), ""):
        start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        before = source.encode()[start:end].decode()
        mutants.append(Mutant(file, function, kind, node.lineno, node.end_lineno, start, end, before, after))
    return [mutant for mutant in mutants if mutant.before != mutant.after]


def _is_python(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


Change = tuple[ast.AST, str, str, str]  # the node, the function around it, the kind of change, the text instead


def _changes(node: ast.AST, function: str) -> Iterator[Change]:
    """The changes of a node and of all below it."""
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom | ast.Assert):
        return
    if isinstance(node, ast.Call) and _name(node.func) in MESSAGES:
        return
    if isinstance(node, ast.If) and _name(node.test) == "TYPE_CHECKING":
        return
    for kind, after in _of_node(node):
        yield node, function, kind, after
    if isinstance(node, ast.If):  # never taken; or always, unless it raises, which any test would see
        yield node.test, function, "branch", f"{_text(node.test)} and False"
        if not isinstance(node.body[-1], ast.Raise):
            yield node.test, function, "branch", f"{_text(node.test)} or True"
    for child in _meaningful(node):
        inner = function
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and child in node.body:
            inner = f"{function}.{node.name}" if function else node.name
        yield from _changes(child, inner)


def _meaningful(node: ast.AST) -> Iterator[ast.AST]:
    """The children of a node that mean something when the program runs."""
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        yield from (default for default in [*node.args.defaults, *node.args.kw_defaults] if default is not None)
        yield from node.body if isinstance(node, ast.FunctionDef) else [node.body]
    elif isinstance(node, ast.ClassDef):
        yield from node.body
    elif isinstance(node, ast.AnnAssign):
        yield from [node.value] if node.value else []
    elif isinstance(node, ast.While):
        yield from node.body
    elif isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant):
        return  # -1 is a constant of its own
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return  # a docstring
    elif isinstance(node, ast.Call) and _name(node.func) == "isinstance":
        yield node.args[0]  # the types are as good as an annotation
    elif isinstance(node, ast.keyword):
        if node.arg not in KEYWORDS_KEPT:
            yield node.value
    elif isinstance(node, ast.Compare) and any(_name(side) in ("__name__", "platform") for side in node.comparators):
        return
    else:
        yield from ast.iter_child_nodes(node)


def _of_node(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The kinds of change to one node, and the text that takes its place."""
    match node:
        case ast.Compare():
            for i, operator in enumerate(node.ops):
                ops = [*node.ops[:i], COMPARISONS[type(operator)](), *node.ops[i + 1 :]]
                yield "comparison", _text(_with(node, ops=ops))
        case ast.BinOp() if type(node.op) in ARITHMETIC and not _is_sequence(node.left, node.right):
            yield "arithmetic", _text(_with(node, op=ARITHMETIC[type(node.op)]()))
        case ast.BinOp(op=ast.FloorDiv()):
            yield "arithmetic", f"(-(-{_text(node.left)} // {_text(node.right)}))"  # rounded up instead of down
        case ast.BoolOp():
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield "and or", _text(_with(node, op=other))
            for i in range(len(node.values)):
                rest = node.values[:i] + node.values[i + 1 :]
                yield "condition dropped", _text(rest[0] if len(rest) == 1 else _with(node, values=rest))
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as number)):
            yield "constant", f"(-{number + 1})"
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert()):
            yield "sign dropped", _text(node.operand)
        case ast.Constant(value=bool()):
            yield "constant", str(not node.value)
        case ast.Constant(value=int()):
            yield "constant", str(node.value + 1)
        case ast.Constant(value=float()):
            yield "constant", str(node.value * 2 or 1.0)
        case ast.IfExp():
            yield "branch", _text(node.body)
            yield "branch", _text(node.orelse)
        case ast.Subscript(slice=ast.Slice(lower=lower, upper=upper)):
            for name, bound in (("lower", lower), ("upper", upper)):
                if bound is not None:
                    yield "slice", _text(_with(node, slice=_with(node.slice, **{name: None})))
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            for i, loop in enumerate(node.generators):
                if loop.ifs:
                    loops = [*node.generators[:i], _with(loop, ifs=loop.ifs[1:]), *node.generators[i + 1 :]]
                    yield "condition dropped", _text(_with(node, generators=loops))
        case ast.Call():
            yield from _of_call(node)
        case ast.AugAssign():
            yield "statement dropped", "pass"
            if type(node.op) in ARITHMETIC:
                yield "arithmetic", ast.unparse(_with(node, op=ARITHMETIC[type(node.op)]()))
        case ast.Expr(value=ast.Call() as call) if _name(call.func) not in MESSAGES:
            yield "statement dropped", "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "statement dropped", "pass"
        case ast.Continue() | ast.Break():
            yield "statement dropped", "pass"


def _of_call(node: ast.Call) -> Iterator[tuple[str, str]]:
    name = _name(node.func)
    if name in FUNCTIONS:
        func = copy.copy(node.func)
        setattr(func, "attr" if isinstance(func, ast.Attribute) else "id", FUNCTIONS[name])
        yield "function", _text(_with(node, func=func))
    first = node.args[:2]
    if len(first) == 2 and name not in SYMMETRIC and not any(isinstance(one, ast.Starred) for one in first):
        yield "arguments swapped", _text(_with(node, args=[*reversed(first), *node.args[2:]]))
    for i, keyword in enumerate(node.keywords):
        if keyword.arg is not None and keyword.arg not in KEYWORDS_KEPT:
            yield "keyword dropped", _text(_with(node, keywords=node.keywords[:i] + node.keywords[i + 1 :]))


def _with(node: ast.AST, **changed: object) -> ast.AST:
    """A copy of a node with some fields changed."""
    other = copy.copy(node)
    for name, value in changed.items():
        setattr(other, name, value)
    return other


def _text(node: ast.AST) -> str:
    """An expression as text that can stand anywhere an expression can."""
    text = ast.unparse(node)
    return text if isinstance(node, ast.Name | ast.Constant | ast.Call | ast.Attribute | ast.Subscript) else f"({text})"


def _name(node: ast.AST) -> str:
    """The last part of a name."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _is_sequence(*nodes: ast.AST) -> bool:
    """Whether one of two operands shows that they are texts, lists or sets: other arithmetic would not run at all."""
    kinds = ast.List | ast.Tuple | ast.Set | ast.Dict | ast.JoinedStr | ast.ListComp | ast.SetComp | ast.DictComp
    return any(
        isinstance(node, kinds) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))
        for node in nodes
    )
