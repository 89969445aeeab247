"""docs/howto/deploy.md: what it names exists, and what it says to type is accepted."""

import re
import shlex
import tomllib

from nsqfast.program.options import declared
from nsqfast.tools.completion.programs import DAEMONS
from support.deployed import FOLDER, read_command
from support.server import ROOT

PAGE = (ROOT / "docs" / "howto" / "deploy.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+).*?\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [
    shlex.split(line)
    for kind, text in BLOCKS
    if kind == "sh"
    for line in text.replace("\\\n", " ").splitlines()
    if line
]


def test_files_that_it_names_exist():
    named = set(re.findall(r"deploy/[\w/.-]*\w", PAGE)) - {"deploy/kubernetes"}
    assert len(named) >= 3
    for name in named:
        assert (ROOT / name).exists(), name


def test_daemons_take_the_flags():
    found = []
    for words in COMMANDS:
        for number, word in enumerate(words):
            if word in DAEMONS and words[0] in {"docker", word}:
                found.append(read_command(words[number:])[0])
    assert found == ["nsqfast-nsqd"]


def test_the_wheel_brings_what_is_copied():
    with (ROOT / "pyproject.toml").open("rb") as file:
        brought = tomllib.load(file)["tool"]["setuptools"]["data-files"]
    (folder,) = (words[1] for words in COMMANDS if words[0] == "cd")
    names = [word for words in COMMANDS if words[0] == "install" for word in words if "/" in word]
    sources = [name for name in names if not name.startswith("/")]
    assert len(sources) == 4
    for name in sources:
        kind, _, pattern = name.partition("/")
        (source,) = brought[f"{folder.removeprefix('/opt/nsqfast/')}/{kind}"]
        assert list((ROOT / source).parent.glob(pattern))


def test_the_settings_that_are_changed_are_in_the_samples():
    edits = [words for words in COMMANDS if words[0] == "sed"]
    assert len(edits) == 2
    for _sed, _i, program, path in edits:
        old, new = re.fullmatch(r"s/(.*)/(.*)/", program).groups()
        name = path.rpartition("/")[2]
        sample = (FOLDER / "config" / name).read_text(encoding="utf-8")
        text, count = re.subn(old, new, sample, flags=re.MULTILINE)
        assert count == 1
        daemon = DAEMONS[f"nsqfast-{name.removesuffix('.toml')}"]
        keys = {item.key for item in declared(__import__(daemon, fromlist=["Options"]).Options)}
        assert set(tomllib.loads(text)) <= keys
        assert tomllib.loads(text)
