"""The HTTP reference has every endpoint that the routers have, and no other; what is for operators is so there."""

import logging
import re
from types import SimpleNamespace

import pytest
from aiohttp import web

from nsqfast.net.browsers import BrowserRules
from nsqfast.nsqadmin.api.routes import add_routes
from nsqfast.nsqadmin.options import Options as AdminOptions
from nsqfast.nsqlookupd.http_api import HttpApi as LookupdApi
from nsqfast.nsqlookupd.options import Options as LookupdOptions
from nsqfast.nsqlookupd.server import Server as Lookupd
from support.http import HttpBroker
from support.server import ROOT

ENDPOINT = re.compile(r"\b(GET|POST|PUT|DELETE) (/[^\s,]+)")
CODE = re.compile(r"`([A-Z][A-Z_]{5,})`")


def read_page(name):
    return (ROOT / "docs" / "reference" / f"{name}-http.md").read_text(encoding="utf-8")


def read_sections(text):
    """(endpoints, text) of each section that has some in its heading."""
    for section in re.split(r"^#{2,3} ", text, flags=re.MULTILINE)[1:]:
        heading, _, rest = section.partition("\n")
        yield ENDPOINT.findall(heading), rest


def list_routes(api):
    """(method, path) and the route of each; `/config/:opt` as it is registered."""
    router = api._routes.router
    for path, methods in router.exact.items():
        yield from (((method, path), route) for method, route in methods.items())
    for path, methods in router.prefixes.items():
        yield from (((method, f"{path}:opt"), route) for method, route in methods.items())


@pytest.fixture
def nsqd(tmp_path):
    return HttpBroker(tmp_path, has_shortcut=False).api


@pytest.fixture
def nsqlookupd():
    lookupd = Lookupd(LookupdOptions(), LookupdApi)
    return LookupdApi(lookupd, BrowserRules("", (), logging.getLogger("nsqlookupd")))


@pytest.mark.parametrize("name", ["nsqd", "nsqlookupd"])
def test_every_endpoint_is_there_once(request, name):
    listed = [one for found, _ in read_sections(read_page(name)) for one in found]
    assert sorted(listed) == sorted(one for one, _ in list_routes(request.getfixturevalue(name)))


def test_every_endpoint_of_nsqadmin_is_there_once():
    """Those of NSQ; the ones of our own pages stand in docs/ADMIN.md."""
    app = web.Application()
    add_routes(app, SimpleNamespace(options=AdminOptions(), upstream=None))
    routes = {
        (route.method, route.resource.canonical)
        for route in app.router.routes()
        if route.method != "HEAD"
    }
    listed = [one for found, _ in read_sections(read_page("nsqadmin")) for one in found]
    assert sorted(listed) == sorted(routes | {("GET", "/metrics")})


@pytest.mark.parametrize("name", ["nsqd", "nsqlookupd"])
def test_every_endpoint_is_shown_with_curl(name):
    for found, text in read_sections(read_page(name)):
        for method, path in found:
            used = path.replace(":opt", "")
            assert re.search(rf"^.*(curl|peek=).*{re.escape(used)}", text, re.MULTILINE), (
                method,
                path,
            )


def test_what_is_for_operators_is_marked(nsqd):
    """In the section itself, or in the words that all sections of its kind begin with."""
    page = read_page("nsqd")
    marked = {
        one
        for chapter in re.split(r"^## ", page, flags=re.MULTILINE)
        for found, text in read_sections(f"## {chapter}")
        for one in found
        if "*operators*" in text or "*operators*" in chapter.partition("\n### ")[0]
    }
    created = {("POST", "/topic/create"), ("POST", "/channel/create")}  # "all but `create`"
    assert marked - created == {one for one, route in list_routes(nsqd) if route.is_admin}


def test_the_codes_are_those_of_the_source():
    """Each error code of the pages stands in the source; of those that a name is part of, the beginning."""
    paths = [*ROOT.glob("nsqfast/*/*.py"), *ROOT.glob("_ext/**/*.pyx")]
    source = "".join(path.read_text(encoding="utf-8") for path in paths)
    for name in ("nsqd", "nsqlookupd"):
        codes = set(CODE.findall(read_page(name)))
        assert len(codes) > 5
        for code in codes:
            stem = re.sub(r"^((?:MISSING|INVALID)_ARG|TOO_MANY)_.*", r"\1_", code)
            assert stem in source, code
