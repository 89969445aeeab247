"""docs/reference/configuration.md is what the programs declare, on whatever machine it was written."""

import importlib
import importlib.util
import re
import tomllib
from dataclasses import fields

import pytest

from nsqfast.nsqd.options import Options
from nsqfast.program.options import METADATA_KEY, declared
from nsqfast.tools.completion.programs import MODULES
from support.server import ROOT

PAGE = ROOT / "docs" / "reference" / "configuration.md"


def load_writer():
    spec = importlib.util.spec_from_file_location(
        "writer", ROOT / "docs" / "site" / "configuration.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


WRITER = load_writer()


def test_the_page_is_what_there_is():
    assert PAGE.read_text(encoding="utf-8") == WRITER.write_page(), "make configuration"


@pytest.mark.parametrize("name", MODULES)
def test_defaults_of_the_machine_are_named(name):
    """Else the page would differ from machine to machine."""
    cls = importlib.import_module(MODULES[name]).Options
    computed = {
        field.name
        for field in fields(cls)
        if METADATA_KEY in field.metadata and callable(field.default_factory)
    }
    flags = {o.flag for o in declared(cls) if o.attribute in computed and not o.kind.is_list}
    assert flags <= WRITER.OF_THE_MACHINE.keys()


def test_the_file_shown_has_keys_that_there_are():
    (text,) = re.findall(r"```toml.*?\n(.*?)```", WRITER.INTRODUCTION, re.DOTALL)
    known = {option.key: option for option in declared(Options)}
    shown = tomllib.loads(text)
    assert known.keys() >= shown.keys() > set()
    for key, value in shown.items():
        known[key].kind.coerce(value)
