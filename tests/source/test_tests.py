"""Tests wait for what happens, never for a time that should be enough; and each of them checks something."""

import ast
from pathlib import Path

import pytest

from support.imports import ROOT

FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef

# Files or functions whose pauses are no waiting. Anywhere else a pause is in a loop that ends once something is so.
PAUSES = {
    "tests/client/programs/mail_worker.py::send_mail": "the work that the program is about",
    "tests/client/test_producer.py::test_time_is_up_when_it_is": "two deadlines, one after the other, are the test",
    "tests/client/test_wrong_addresses.py::test_an_nsqd_whose_refusal_comes_in_pieces": "pieces of one stream; "
    "nothing says when the client has read one",
    "tests/compat/test_auth.py::trickle": "a server that sends a byte now and then",
    "tests/fuzz/states": "clients and operators that take their time are what it plays",
    "tests/nsqd/test_stalls.py::test_sockets_are_read_before_what_is_due_is_done": "a loop that stands still",
    "tests/nsqd/test_stalls.py::test_what_came_while_the_broker_stood_still_counts": "a broker that stands still",
    "tests/nsqlookupd/test_tcp.py::test_what_came_while_the_loop_stood_still_is_read_first": "a loop that stands still",
    "tests/tools/nsq_to_file/test_beside_go.py::test_empty_files": "ticks at which nothing is done leave no trace",
}
SLEEPS = {"time.sleep", "asyncio.sleep", "sleep"}
# What fails by itself; the last ones are methods of Playwright.
FAILING_CALLS = set(
    "pytest.raises pytest.fail pytest.warns asyncio.timeout asyncio.wait_for".split()
)
CHECKS_OF_OTHERS = {"expect", "wait_for_url"}


@pytest.fixture(scope="module")
def trees():
    paths = sorted((ROOT / "tests").rglob("*.py"))
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in paths}


def name_called(call):
    """Its last two words: `time.sleep`; or one: `sleep`."""
    if isinstance(call.func, ast.Attribute):
        return f"{getattr(call.func.value, 'id', '')}.{call.func.attr}"
    return getattr(call.func, "id", "")


def is_pause(node):
    """A call of sleep with anything but 0, or Playwright's."""
    if not isinstance(node, ast.Call):
        return False
    name = name_called(node)
    is_zero = [ast.unparse(argument) for argument in node.args[:1]] == ["0"]
    return name.endswith(".wait_for_timeout") or (name in SLEEPS and not is_zero)


def is_polling(loop):
    """A loop that ends once something is so."""
    return isinstance(loop, ast.While) and (
        not isinstance(loop.test, ast.Constant)
        or any(isinstance(node, ast.Return | ast.Break) for node in ast.walk(loop))
    )


def find_pauses(node, function="", polls=False):
    """(outermost function, line) of those outside loops that end once something is so."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, FUNCTIONS):
            # What a loop calls is not part of it, unless it is defined there.
            yield from find_pauses(child, function or child.name)
        elif is_pause(child) and not polls:
            yield function, child.lineno
        else:
            yield from find_pauses(child, function, polls or is_polling(child))


@pytest.mark.slow
def test_nothing_waits_for_a_time_that_should_be_enough(trees):
    found, listed = [], set()
    for name, tree in trees.items():
        for function, line in find_pauses(tree):
            places = PAUSES.keys() & {f"{name}::{function}", *map(str, Path(name).parents)}
            listed |= places
            found += [] if places else [f"{name}:{line} in {function}"]
    assert found == []
    assert sorted(PAUSES.keys() - listed) == []


def fails_by_itself(node):
    """It asserts something, raises an AssertionError, or expects an exception."""
    return any(
        isinstance(one, ast.Assert)
        or (isinstance(one, ast.Raise) and one.exc and "AssertionError" in ast.unparse(one.exc))
        or (isinstance(one, ast.Call) and name_called(one) in FAILING_CALLS)
        for one in ast.walk(node)
    )


def read_functions(tree):
    """(name, whether it fails by itself, the last words of what it calls) of every function and method."""
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            calls = [name_called(one) for one in ast.walk(node) if isinstance(one, ast.Call)]
            words = {name.rpartition(".")[2] for name in calls}
            yield node.name, fails_by_itself(node), words


def find_blind_tests(functions, helpers=()):
    """Names of tests that check nothing, by themselves or by what they call."""
    known = [*functions, *helpers]
    failing = CHECKS_OF_OTHERS | {name for name, fails, _ in known if fails}
    while more := {name for name, _, calls in known if calls & failing} - failing:
        failing |= more
    return [
        name
        for name, fails, calls in functions
        if name.startswith("test_") and not (fails or calls & failing)
    ]


@pytest.mark.slow
def test_every_test_checks_something(trees):
    functions = {name: [*read_functions(tree)] for name, tree in trees.items()}
    tests = {name for name in functions if Path(name).name.startswith("test_")}
    helpers = [one for name in functions.keys() - tests for one in functions[name]]
    found = {name: find_blind_tests(functions[name], helpers) for name in sorted(tests)}
    assert {name: blind for name, blind in found.items() if blind} == {}


def find_empty_assertions(tree):
    """Lines of those that hold anyway and that ruff passes over: a function, an iterator, `1`, `x.y == x.y`."""
    for test in (node.test for node in ast.walk(tree) if isinstance(node, ast.Assert)):
        if isinstance(test, ast.Compare):
            sides = [*map(ast.dump, [test.left, *test.comparators])]
            is_true = len(set(sides)) < len(sides)
        else:
            is_true = isinstance(test, ast.Constant | ast.Lambda | ast.GeneratorExp | ast.List)
        if is_true:
            yield test.lineno


def test_no_assertion_holds_whatever_happens(trees):
    found = {name: [*find_empty_assertions(tree)] for name, tree in trees.items()}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_what_is_found():
    tree = ast.parse("""
def helper():
    while True:
        time.sleep(1)
    inner()
def inner():
    while not is_so():
        await asyncio.sleep(0.1)
    assert x.y == x.y
def test_a():
    helper()
def test_b():
    await asyncio.sleep(0)
""")
    assert list(find_pauses(tree)) == [("helper", 4)]
    assert find_blind_tests([*read_functions(tree)]) == ["test_b"]
    assert list(find_empty_assertions(tree)) == [9]
