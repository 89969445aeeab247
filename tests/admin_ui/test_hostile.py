"""Texts from the cluster stay text, and what would run a script is blocked."""

import urllib.request

import pytest

from support.admin_cluster import make_entry
from support.admin_ui_sites import BAD, SITES, WORSE

pytestmark = [pytest.mark.slow, pytest.mark.soak]


@pytest.fixture(scope="module")
def hostile():
    entry = make_entry(0, user=BAD, action=WORSE, target={"topic": BAD}, effect={WORSE: BAD})
    with SITES["hostile"]._replace(entries=[entry]).start() as pages:
        names = ("client_id", "hostname", "user_agent", "remote_address")
        pages.context.consumers.changes = dict(zip(names, (BAD, WORSE) * 2, strict=True))
        yield pages


def quoted(text):
    return urllib.request.quote(text, safe="")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/topics",
        f"/topics?q={quoted(WORSE)}",
        f"/topics/{quoted(BAD)}",
        f"/topics/{quoted(BAD)}/{quoted(WORSE)}",
        f"/topics/{quoted(BAD)}/{quoted(WORSE)}?tab=clients",
        f"/topics/{quoted(BAD)}/{quoted(WORSE)}/messages",
        f"/topics/{quoted(BAD)}/{quoted(WORSE)}/dead",
        "/nodes",
        "/nodes/10.0.0.1:4151",
        "/lookup",
        "/problems",
        "/audit",
    ],
)
def test_markup_in_names_and_texts_is_shown_as_text(hostile, page, path):
    page.goto(hostile.url + path)
    shown = page.locator("body").inner_text() + page.title()
    shown += "".join(each.input_value() for each in page.locator("input[type=search]").all())
    assert BAD in shown or WORSE in shown
    assert page.locator("img, body script:not([src]):not([type='application/json'])").count() == 0
    # New rows are made by scripts; they are text as well.
    page.evaluate("() => document.querySelectorAll('tbody tr').forEach((row) => row.remove())")
    page.evaluate(
        """async () => {
            const { patch } = await import(document.querySelector("script[type=module]").src.replace("main", "patch"));
            const settings = JSON.parse(document.getElementById("page").textContent);
            if (!settings.live) return;
            const view = encodeURIComponent(location.pathname + location.search);
            const answer = await fetch(`${settings.base}/ui/live?view=${view}&since=-`);
            patch(await answer.json());
        }"""
    )
    assert page.locator("img, body script:not([src]):not([type='application/json'])").count() == 0


def test_an_unknown_name_with_markup_is_text_in_the_page_and_its_title(hostile, page, watch):
    page.goto(hostile.url + "/topics/" + quoted(BAD + "x"))
    assert BAD + "x" in page.locator("main").inner_text()
    assert page.locator("img").count() == 0
    watch.take_faults()  # that it is a 404


@pytest.mark.parametrize(
    "script",
    [
        "() => { const s = document.createElement('script'); s.append('window.ran = 1'); document.body.append(s); }",
        "() => { document.body.innerHTML = '<b>x</b>'; }",
        "() => { document.body.insertAdjacentHTML('beforeend', '<b id=x onclick=alert(1)>x</b>'); }",
        "() => { document.body.setAttribute('style', 'color: red'); }",
        "() => { document.body.setAttribute('onclick', 'window.ran = 1'); document.body.click(); }",
        "() => { setTimeout(() => eval('window.ran = 1')); }",
    ],
    ids=["inline", "innerHTML", "insertAdjacentHTML", "style", "handler", "eval"],
)
def test_what_is_injected_is_blocked(hostile, page, watch, script):
    page.goto(hostile.url + "/topics")
    try:
        page.evaluate(script)
    except Exception as error:
        assert "Trusted" in str(error)
    page.evaluate("() => new Promise((done) => setTimeout(done))")  # after what was to run later
    assert page.evaluate("() => window.ran") is None
    assert page.evaluate("() => document.body.style.color") == ""
    assert watch.take_faults() != []
