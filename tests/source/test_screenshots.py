"""docs/screenshots has the pictures that documents show, no others, made from this version (`make screenshots`)."""

from nsqfast import __version__
from support.screenshots import FOLDER, list_shown


def test_there_are_those_that_documents_show():
    assert {path.name for path in FOLDER.iterdir()} == list_shown()


def test_they_are_of_this_version():
    mark = f"Software\0nsqfast {__version__}".encode()
    assert [name for name in list_shown() if mark not in (FOLDER / name).read_bytes()] == []
