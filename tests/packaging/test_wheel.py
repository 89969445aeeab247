"""What is in a wheel: all of nsqfast, its licences, and nothing that only builds and tests need."""

import configparser
import io
import re
import zipfile
from email.parser import Parser
from pathlib import PurePosixPath

import pytest
from elftools.elf.elffile import ELFFile

from support.plain_install import read_project
from support.server import ROOT

SIZE_MAX = 10_000_000
UNPACKED_SIZE_MAX = 14_000_000  # tests/source/test_extras.py counts with it
GLIBC_MAX = (2, 28)
TOP = re.compile(r"nsqfast|pyspark_nsqfast|nsqfast-[\d.a-z]+\.dist-info")
SUFFIXES = {".py", ".pyi", ".pxd", ".h", ".so", ".typed", ".html", ".css", ".js", ".svg"}
PLAIN = {"LICENSE", "SHA256SUMS"}
# What pip puts below the prefix: man pages, completions, and files for an operator to copy.
SHARED = re.compile(
    r"nsqfast-[\d.a-z]+\.data/data/share/(man/man1|zsh/site-functions|nsqfast/\w+)/[^/]+"
)


@pytest.fixture
def archive(wheel):
    with zipfile.ZipFile(wheel) as opened:
        yield opened


@pytest.fixture
def names(archive):
    return {PurePosixPath(name) for name in archive.namelist() if not name.endswith("/")}


def read_metadata(archive, name):
    (path,) = [
        each for each in archive.namelist() if re.fullmatch(rf"[^/]+\.dist-info/{name}", each)
    ]
    return archive.read(path).decode()


def open_modules(archive):
    for name in archive.namelist():
        if name.endswith(".so"):
            yield name, ELFFile(io.BytesIO(archive.read(name)))


def list_needed_glibc(module):
    """The versions of glibc's symbols that a compiled module asks for."""
    section = module.get_section_by_name(".gnu.version_r")
    names = (
        [each.name for _, versions in section.iter_versions() for each in versions]
        if section
        else []
    )
    return [
        tuple(map(int, name[6:].split(".")))
        for name in names
        if re.fullmatch(r"GLIBC_[\d.]+", name)
    ]


def list_unknown_symbols(module):
    """What a compiled module hopes to find that is neither Python's nor known to the glibc it was linked against."""
    symbols = module.get_section_by_name(".dynsym")
    versions = module.get_section_by_name(".gnu.version")
    for number, symbol in enumerate(symbols.iter_symbols()):
        version = None if versions is None else versions.get_symbol(number).entry.ndx
        is_wanted = symbol.entry.st_shndx == "SHN_UNDEF" and symbol.entry.st_info.bind != "STB_WEAK"
        is_known = isinstance(version, int) or symbol.name.startswith(("Py", "_Py"))
        if symbol.name and is_wanted and not is_known:
            yield symbol.name


def test_it_is_small(wheel, archive):
    assert wheel.stat().st_size < SIZE_MAX
    assert sum(each.file_size for each in archive.infolist()) < UNPACKED_SIZE_MAX


def test_it_holds_nothing_else(names):
    names = {name for name in names if not SHARED.fullmatch(str(name))}
    inside = [name for name in names if not name.parts[0].endswith(".dist-info")]
    assert [name for name in names if not TOP.fullmatch(name.parts[0])] == []
    assert [name for name in inside if name.suffix not in SUFFIXES and name.name not in PLAIN] == []
    assert [name for name in inside if {"dev", "tests", "benchmarks"} & set(name.parts)] == []


def test_it_holds_all_of_the_package(names):
    compiled = {name.parent / name.name.partition(".")[0] for name in names if name.suffix == ".so"}
    sources = [path for path in ROOT.glob("_ext/**/*.pyx") if path.parent.name != "dev"]
    sources.append(ROOT / "_ext/core/cyutility.c")  # Cython's own code, which all of them share
    assert compiled == {
        PurePosixPath("nsqfast", path.relative_to(ROOT).with_suffix("")) for path in sources
    }
    written = [
        *(ROOT / "nsqfast").rglob("*.*"),
        *(path for path in ROOT.glob("_ext/**/*.[hp]*") if path.parent.name != "dev"),
    ]
    inside = {
        PurePosixPath(path.relative_to(ROOT))
        for path in written
        if path.suffix in SUFFIXES - {".so"}
    }
    expected = {
        PurePosixPath("nsqfast", path) if path.parts[0] == "_ext" else path
        for path in inside
        if not {"autoload", "dev"} & set(path.parts)
    }
    assert expected - names == set()


def test_programs_and_licences(archive, names):
    programs = configparser.ConfigParser()
    programs.optionxform = str
    programs.read_string(read_metadata(archive, "entry_points.txt"))
    assert dict(programs["console_scripts"]) == read_project()["scripts"]
    assert dict(programs["pytest11"]) == read_project()["entry-points"]["pytest11"]
    licences = Parser().parsestr(read_metadata(archive, "METADATA")).get_all("License-File")
    assert sorted(licences) == ["LICENSE", "nsqfast/nsqadmin/static/vendor/uplot/LICENSE"]
    (folder,) = {name.parts[0] for name in names if name.parts[0].endswith(".dist-info")}
    assert {PurePosixPath(folder, "licenses", each) for each in licences} <= names


def test_compiled_modules_fit_elsewhere(wheel, archive):
    """No later glibc than the name says, no folder of the machine that built them, and no debugging tables."""
    floor = re.search(r"manylinux_(\d+)_(\d+)_", wheel.name)
    assert floor, f"{wheel.name} was not repaired"
    for name, module in open_modules(archive):
        assert max(list_needed_glibc(module), default=GLIBC_MAX) <= tuple(
            map(int, floor.groups())
        ), name
        assert list(list_unknown_symbols(module)) == [], name
        tags = {tag.entry.d_tag for tag in module.get_section_by_name(".dynamic").iter_tags()}
        assert not tags & {"DT_RPATH", "DT_RUNPATH"}, name
        assert module.get_section_by_name(".debug_info") is None, name
        assert str(ROOT).encode() not in archive.read(name), name
