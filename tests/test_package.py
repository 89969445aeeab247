"""`import nsqfast`: it names what the client has, and loads it when it is used."""

import subprocess
import sys

import pytest

import nsqfast
from nsqfast import client
from nsqfast.app.application import App

OF_PACKAGE = {"EmbeddedNsqd", "NSQ_VERSION", "__version__", "embedded"}


def run_python(text):
    """In a process of its own, which has imported nothing yet; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_an_import_loads_nothing():
    text = (
        "import sys; before = {*sys.modules}\n"
        "import nsqfast; nsqfast.__version__, dir(nsqfast)\n"
        "print(*{*sys.modules} - before)"
    )
    loaded = {
        name
        for name in run_python(text)
        if name.partition(".")[0] not in {*sys.stdlib_module_names}
    }
    assert loaded == {"nsqfast", "nsqfast.version"}


@pytest.mark.parametrize(
    "text",
    [
        "from nsqfast import Consumer, Producer, Message, Config",
        "import nsqfast; nsqfast.Producer",
        "from nsqfast import *; Producer",
    ],
)
def test_a_name_loads_the_client_when_it_is_used(text):
    assert run_python(f"{text}\nimport sys; print('nsqfast.client' in sys.modules)") == ["True"]


def test_a_broker_is_loaded_when_it_is_run():
    text = "import sys, nsqfast; nsqfast.embedded(); print('nsqfast.nsqd.server' in sys.modules)"
    assert run_python(text) == ["False"]


def test_its_names_are_those_of_the_client():
    assert set(nsqfast.__all__) == {*client.__all__, "App"} | OF_PACKAGE
    assert nsqfast.App is App
    for name in [*client.__all__, "ArrayBatch"]:
        assert getattr(nsqfast, name) is getattr(client, name)


def test_dir_has_what_was_not_loaded_yet():
    names = set(run_python("import nsqfast; print(*dir(nsqfast))"))
    assert {*nsqfast.__all__} <= names
    # Where numpy is missing, whoever looks at all that `dir` lists would fail.
    assert "ArrayBatch" not in names


def test_a_star_needs_no_numpy():
    assert run_python("from nsqfast import *; import sys; print('numpy' in sys.modules)") == [
        "False"
    ]


def test_other_names_are_an_error():
    with pytest.raises(AttributeError, match="module 'nsqfast' has no attribute 'Produzer'"):
        _ = nsqfast.Produzer
    with pytest.raises(ImportError, match="cannot import name 'Produzer' from 'nsqfast'"):
        exec("from nsqfast import Produzer")
