"""Sample config files: every setting of today with its default, and readable by the daemon itself."""

import re
import tomllib

import pytest

from nsqfast.dev.manual import OF_HOST, compose_files, list_settings
from nsqfast.program.config_file import read_config
from nsqfast.tools.completion.programs import DAEMONS
from support.server import ROOT

FOLDER = ROOT / "deploy" / "config"
# A setting that is commented out; a comment has a blank behind its sign.
SETTING = re.compile(r"^#(?=\w+ = )", re.MULTILINE)


def test_the_files_are_those_of_todays_options():
    found = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()}
    assert found == compose_files("samples"), "run `make samples`"


@pytest.mark.parametrize("program", DAEMONS)
def test_they_change_only_who_reaches_a_daemon_and_how_often(program):
    text = compose_files("samples")[f"{program.removeprefix('nsqfast-')}.toml"]
    changed = tomllib.loads(text)
    assert changed
    for key, value in changed.items():
        assert key == "max_connections" or value.startswith("127.0.0.1:"), key


@pytest.mark.parametrize("program", DAEMONS)
def test_every_setting_can_be_enabled_and_has_its_default(program, tmp_path):
    (settings,) = list_settings(program)
    text = compose_files("samples")[f"{program.removeprefix('nsqfast-')}.toml"]
    enabled = tmp_path / "enabled.toml"
    enabled.write_text(SETTING.sub("", text), encoding="utf-8")
    items = [item for item in settings.options if item.key]
    changed = {item.attribute for item in items if item.key in tomllib.loads(text)}
    values = read_config(items, str(enabled), settings.defaults)
    assert set(values) == {item.attribute for item in items}
    for attribute, value in values.items():
        if attribute in OF_HOST:
            assert value == OF_HOST[attribute][1]
        elif attribute not in changed:
            assert value == (settings.defaults[attribute] or type(value)()), attribute


@pytest.mark.parametrize("program", DAEMONS)
def test_every_setting_has_its_help_above_it(program):
    (settings,) = list_settings(program)
    text = compose_files("samples")[f"{program.removeprefix('nsqfast-')}.toml"]
    paragraphs = {part.rpartition("\n")[2]: part for part in text.strip().split("\n\n")}
    for item in settings.options:
        if item.key:
            (part,) = (
                each
                for line, each in paragraphs.items()
                if line.lstrip("#").startswith(f"{item.key} =")
            )
            words = " ".join(line.removeprefix("# ") for line in part.strip().splitlines()[:-1])
            assert words.startswith(item.help)
