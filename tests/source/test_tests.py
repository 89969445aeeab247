"""Tests wait for what happens, never for a time that should be enough; and each of them checks something."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
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
# Tests that fail by what they call, of other packages: Playwright's.
CHECKS_OF_OTHERS = {"expect", "wait_for_url"}
FAILING_CALLS = {
    "pytest.raises",
    "pytest.fail",
    "pytest.warns",
    "asyncio.timeout",
    "asyncio.wait_for",
}


def list_files():
    return sorted((ROOT / "tests").rglob("*.py"))


def name_of(path):
    return str(path.relative_to(ROOT))


def name_called(call):
    """Its last two words: `time.sleep`; or one: `sleep`."""
    if isinstance(call.func, ast.Attribute):
        return f"{getattr(call.func.value, 'id', '')}.{call.func.attr}"
    return getattr(call.func, "id", "")


# -- pauses


def is_pause(node):
    """A call of sleep with anything but 0, or Playwright's."""
    if not isinstance(node, ast.Call):
        return False
    name = name_called(node)
    if name.endswith(".wait_for_timeout"):
        return True
    is_zero = bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
    return name in {"time.sleep", "asyncio.sleep", "sleep"} and not is_zero


def is_polling(loop):
    """A loop that ends once something is so."""
    if not isinstance(loop, ast.While):
        return False
    is_endless = isinstance(loop.test, ast.Constant)
    return not is_endless or any(
        isinstance(node, ast.Return | ast.Break) for node in ast.walk(loop)
    )


def find_pauses(tree):
    """(outermost function, line) of those outside loops that end once something is so."""

    def walk(node, function, polls):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, FUNCTIONS):
                # What a loop calls is not part of it, unless it is defined there.
                yield from walk(child, function or child.name, False)
            elif is_pause(child) and not polls:
                yield function, child.lineno
            else:
                yield from walk(child, function, polls or is_polling(child))

    yield from walk(tree, "", False)


def is_listed(name, function):
    return any(name == each or name.startswith(f"{each}/") for each in PAUSES) or (
        f"{name}::{function}" in PAUSES
    )


@pytest.fixture(scope="module")
def trees():
    return {name_of(path): ast.parse(path.read_text(encoding="utf-8")) for path in list_files()}


@pytest.mark.slow
def test_nothing_waits_for_a_time_that_should_be_enough(trees):
    found = [
        f"{name}:{line} in {function}"
        for name, tree in trees.items()
        for function, line in find_pauses(tree)
        if not is_listed(name, function)
    ]
    assert found == []


def test_pauses_that_are_listed_are_there(trees):
    places = {
        place
        for name, tree in trees.items()
        for function, _ in find_pauses(tree)
        for place in (f"{name}::{function}", *map(str, Path(name).parents))
    }
    assert sorted(PAUSES.keys() - places) == []


def test_what_a_pause_is():
    text = (
        "def a():\n"
        "    time.sleep(0.1)\n"
        "    for _ in range(3):\n"
        "        sleep(pause_s)\n"
        "    while not is_so():\n"
        "        time.sleep(0.1)\n"
        "    while True:\n"
        "        await asyncio.sleep(1)\n"
        "    while True:\n"
        "        await asyncio.sleep(1)\n"
        "        if is_so():\n"
        "            break\n"
        "    await asyncio.sleep(0)\n"
        "page.wait_for_timeout(9)\n"
    )
    assert list(find_pauses(ast.parse(text))) == [("a", 2), ("a", 4), ("a", 8), ("", 14)]


# -- checks


def fails_by_itself(node):
    """It asserts something, raises an AssertionError, or expects an exception."""
    for one in ast.walk(node):
        if isinstance(one, ast.Assert):
            return True
        if isinstance(one, ast.Raise) and one.exc and "AssertionError" in ast.unparse(one.exc):
            return True
        if isinstance(one, ast.Call) and name_called(one) in FAILING_CALLS:
            return True
    return False


def called_names(node):
    """The last word of each call: of a function, a method or a class."""
    calls = [one for one in ast.walk(node) if isinstance(one, ast.Call)]
    return {name_called(one).rpartition(".")[2] for one in calls}


def read_functions(tree):
    """(name, whether it fails by itself, what it calls) of every function and method."""
    return [
        (node.name, fails_by_itself(node), called_names(node))
        for node in ast.walk(tree)
        if isinstance(node, FUNCTIONS)
    ]


def find_failing(functions):
    """Names of those that fail when something is not so, by themselves or by what they call."""
    failing = CHECKS_OF_OTHERS | {name for name, fails, _ in functions if fails}
    while more := {name for name, _, calls in functions if calls & failing} - failing:
        failing |= more
    return failing


def find_blind_tests(functions, helpers):
    """Names of tests that check nothing, by themselves or by what they call."""
    failing = find_failing(functions + helpers)
    return [
        name
        for name, fails, calls in functions
        if name.startswith("test_") and not (fails or calls & failing)
    ]


def is_true_anyway(test):
    """A constant, a text or a tuple that is not empty, a function, `x or 1`, `x == x`."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        return any(map(is_true_anyway, test.values))
    if isinstance(test, ast.Compare):
        sides = [ast.dump(side) for side in (test.left, *test.comparators)]
        are_constants = all(
            isinstance(side, ast.Constant) for side in (test.left, *test.comparators)
        )
        return are_constants or len(set(sides)) < len(sides)
    if isinstance(test, ast.Constant):
        return bool(test.value)
    return isinstance(test, ast.JoinedStr | ast.Lambda | ast.GeneratorExp) or bool(
        getattr(test, "elts", None)
    )


@pytest.mark.slow
def test_every_test_checks_something(trees):
    functions = {name: read_functions(tree) for name, tree in trees.items()}
    tests = {name for name in functions if Path(name).name.startswith("test_")}
    helpers = [one for name in functions.keys() - tests for one in functions[name]]
    found = {name: find_blind_tests(functions[name], helpers) for name in sorted(tests)}
    assert {name: blind for name, blind in found.items() if blind} == {}


def test_no_assertion_holds_whatever_happens(trees):
    found = [
        f"{name}:{node.lineno}"
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert) and is_true_anyway(node.test)
    ]
    assert found == []


def test_what_a_check_is():
    text = (
        "def helper():\n"
        "    inner()\n"
        "def inner():\n"
        "    assert x\n"
        "def test_a():\n"
        "    helper()\n"
        "def test_b():\n"
        "    other()\n"
        "def test_c():\n"
        "    with pytest.raises(E):\n"
        "        other()\n"
    )
    assert find_blind_tests(read_functions(ast.parse(text)), []) == ["test_b"]


@pytest.mark.parametrize(
    "test",
    [
        "True",
        "1",
        "'text'",
        "x or True",
        "x == x",
        "(x == 1, 'no')",
        "f'{x}'",
        "1 < 2",
        "lambda: x",
    ],
)
def test_what_is_true_anyway(test):
    assert is_true_anyway(ast.parse(test, mode="eval").body)


@pytest.mark.parametrize(
    "test", ["x", "x == y", "x or y", "()", "not x", "x and True", "0 <= x < 1"]
)
def test_what_may_be_false(test):
    assert not is_true_anyway(ast.parse(test, mode="eval").body)
