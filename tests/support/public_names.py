"""What docs/STABILITY.md promises: every public name of the client library with its signature, as text.

    .venv/bin/python -P tests/support/public_names.py > tests/source/public_names.txt

Signatures are taken from the sources, and from the stubs of compiled classes: what `inspect` says differs between
versions of Python.
"""

import ast
import importlib
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType

# In this order: a name that an earlier one has is listed as the same.
MODULES = (
    "nsqfast.client",
    "nsqfast.client.sync",
    "nsqfast.client.envelope",
    "nsqfast.client.opentelemetry",
    "nsqfast.client.payload",
    "nsqfast.client.prometheus",
    "nsqfast.errors",
    "nsqfast",
    "nsqfast.testing",
)
# Public, but not in `__all__`.
MORE = {
    "nsqfast.client": ["ArrayBatch"],
    "nsqfast.client.envelope": [
        "Headed",
        "add_headers",
        "encode_headed",
        "read_headers",
        "skip_headers",
        "split_headers",
    ],
    "nsqfast.client.opentelemetry": ["Tracing", "extract_from_json", "inject_into_json"],
    "nsqfast.client.payload": ["decoder_of", "encode_json", "encode_value"],
    "nsqfast.client.prometheus": ["Metrics"],
    "nsqfast.errors": ["PackageMissingError", "PayloadError"],
    "nsqfast": ["ArrayBatch"],
}
# What modules of the client call in one another. No user has a reason to.
INTERNAL = {
    "nsqfast.client.Consumer": "failures kind name on_cancelled on_trouble open prepare_run take_waiting",
    "nsqfast.client.Producer": """connected_addresses end_deferral fail_waiting finish is_idle kind name note_lost
        on_cancelled on_trouble open open_connection_fd publish_again send_encoded""",
    "nsqfast.client.Admin": "kind name",
    "nsqfast.client.Message": "discard is_answerable is_kept",
    "nsqfast.client.Config": "check given is_max_in_flight_given",
    "nsqfast.client.Batch": "__init__",
    "nsqfast.client.ArrayBatch": "__init__ taken",
    "nsqfast.client.sync.Admin": "kind",
    "nsqfast.client.sync.Consumer": "kind",
    "nsqfast.client.sync.Producer": "end_deferral kind",
    "nsqfast.client.sync.Message": "__init__ is_kept",
    "nsqfast.client.sync.Batch": "__init__",
    "nsqfast.client.sync.ArrayBatch": "__init__",
    "nsqfast.EmbeddedNsqd": "__init__",
    "nsqfast.testing.NsqTestCase": "setUp setUpClass",
    "nsqfast.testing.Nsqd": "__init__",
}
# Methods that statements and operators call.
SPECIAL = frozenset(
    """__init__ __aenter__ __aexit__ __aiter__ __anext__ __enter__ __exit__ __iter__ __next__ __len__
    __getitem__""".split()
)


def list_public_names() -> str:
    """Return the whole list."""
    parts, known = [], {}
    for name in MODULES:
        module = importlib.import_module(name)
        for each in sorted({*getattr(module, "__all__", ()), *MORE.get(name, ())}):
            value = getattr(module, each)
            first = known.setdefault(value, f"{name}.{each}")
            same = first != f"{name}.{each}"
            parts.append(f"{name}.{each} = {first}" if same else describe(first, value))
    return "\n".join(parts) + "\n"


def describe(name: str, value: object) -> str:
    """Return a line for what is no class, else one for the class and one for each of its members."""
    if isinstance(value, FunctionType):
        (found,) = find_definitions(importlib.import_module(value.__module__), value.__name__)
        assert isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef)
        return describe_function(found, name)
    if not isinstance(value, type):
        return f"{name}: {type(value).__name__}"
    parents = [each.__name__ for each in value.__bases__ if issubclass(each, Exception)]
    members = list_members(value)
    for each in INTERNAL.get(name, "").split():
        assert each in members, f"INTERNAL of {Path(__file__).name}: {name} has no {each}"
        del members[each]
    head = f"class {name}({', '.join(parents)})" if parents else f"class {name}"
    return "\n".join([head, *(f"    {members[each]}" for each in sorted(members))])


def list_members(cls: type) -> dict[str, str]:
    """Return a line for each member, by name; what a base class from elsewhere brings is left out."""
    members: dict[str, str] = {}
    for each in cls.__mro__:
        if each.__module__.partition(".")[0] != "nsqfast":
            continue
        (found,) = find_definitions(importlib.import_module(each.__module__), each.__name__)
        for member, line in describe_members(found):
            if member in SPECIAL or not member.startswith("_"):
                members.setdefault(member, line)
    return members


def find_definitions(module: ModuleType, name: str) -> list[ast.AST]:
    """Return the classes and functions of that name at the top of a module or, if it is compiled, of its stub."""
    found = [each for each in parse(module).body if getattr(each, "name", "") == name]
    return [ConstantResolver(module).visit(each) for each in found]


@cache
def parse(module: ModuleType) -> ast.Module:
    """Return the syntax tree of its source or stub."""
    path = Path(inspect.getfile(module))
    if path.suffix != ".py":
        path = path.with_name(f"{path.name.partition('.')[0]}.pyi")
    return ast.parse(path.read_text(encoding="utf-8"))


class ConstantResolver(ast.NodeTransformer):
    """Puts the value of a module's constant in the place of its name: a default that changes is seen."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._resolve(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return self._resolve(node)

    def _resolve(self, node: ast.expr) -> ast.expr:
        path = ast.unparse(node).split(".")
        if not path[-1].isupper():
            return node
        value: object = self.module
        for name in path:
            value = getattr(value, name, None)
        return ast.Constant(value) if isinstance(value, int | float | str) else node


def describe_members(cls: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield what is declared in the class, and what `__init__` assigns to."""
    assert isinstance(cls, ast.ClassDef)
    overloads: list[str] = []
    for each in cls.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            yield each.target.id, ast.unparse(each)
        elif isinstance(each, ast.Assign) and isinstance(each.value, ast.Call):
            yield ast.unparse(each.targets[0]), ast.unparse(each)  # a method made of another
        elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            if any(ast.unparse(decorator) == "overload" for decorator in each.decorator_list):
                overloads.append(describe_method(each))
                continue
            # In the place of an implementation stands what callers see of it.
            yield each.name, "\n    ".join(overloads) or describe_method(each)
            overloads.clear()
            if each.name == "__init__":
                yield from describe_attributes(each)


def describe_attributes(init: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield `self.NAME` of each assignment."""
    for each in ast.walk(init):
        targets = each.targets if isinstance(each, ast.Assign) else [getattr(each, "target", None)]
        for target in targets:
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                kind = (
                    f": {ast.unparse(each.annotation)}" if isinstance(each, ast.AnnAssign) else ""
                )
                yield target.attr, target.attr + kind


def describe_method(method: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return one line; a property reads like an attribute."""
    decorators = [ast.unparse(each) for each in method.decorator_list]
    if "property" in decorators:
        return f"{method.name}: {ast.unparse(method.returns)}" if method.returns else method.name
    marks = [f"@{each} " for each in decorators if each in {"classmethod", "staticmethod"}]
    return "".join(marks) + describe_function(method, method.name)


def describe_function(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> str:
    """Return its head in one line."""
    begin = "async def" if isinstance(function, ast.AsyncFunctionDef) else "def"
    end = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    return f"{begin} {name}({ast.unparse(function.args)}){end}"


if __name__ == "__main__":
    print(list_public_names(), end="")
