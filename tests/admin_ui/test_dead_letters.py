"""Dead letters and their redrive in a browser, at a real nsqd."""

import pytest
from playwright.sync_api import expect

from nsqadmin.test_commit_log import start_admin
from nsqadmin.test_dead_letters import make, reject
from support.admin import text_of, wait_for_channel
from support.server import start_nsqd
from support.web import topic_stats

pytestmark = pytest.mark.slow

WIDTHS = (1300, 375)
MARKUP = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def test_dead_letters_are_looked_at_and_sent_back(tmp_path, page, watch, visiting, axe):
    with start_nsqd("nsqfast", tmp_path) as broker:
        make(broker, "orders", "billing")
        reject(
            broker,
            "no such customer",
            MARKUP,
            topic="orders",
            channel="billing",
            body=b'{"order": 7}',
        )
        with visiting(start_admin(text_of(broker.http))) as admin:
            wait_for_channel(admin, "orders", "billing", 1)
            page.goto(f"http://{text_of(admin.http)}/topics/orders/billing")
            page.get_by_role("navigation", name="Parts of the channel").get_by_role(
                "link", name="Dead"
            ).click()
            expect(page.get_by_role("heading", level=1)).to_have_text("Dead letters of billing")
            why = page.get_by_role("table", name="Dead letters of the sample by reason and error")
            expect(why).to_contain_text("no such customer")
            expect(why).to_contain_text(MARKUP)
            assert page.locator("main img, main script").count() == 0
            page.locator("summary.preview").first.click()
            expect(page.locator(".tree").first).to_contain_text("order")
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 900})
                over = page.evaluate(
                    "() => document.scrollingElement.scrollWidth - window.innerWidth"
                )
                assert over <= 0
                assert axe.check(page) == []
            page.get_by_role("button", name="Redrive", exact=True).click()
            expect(page.get_by_role("alert")).to_contain_text("type billing to confirm")
            assert all("409" in fault for fault in watch.take_faults())
            page.get_by_label("To confirm").fill("billing")
            page.get_by_role("button", name="Redrive", exact=True).click()
            told = page.get_by_role("table", name="Results by node")
            expect(told.locator("tbody tr")).to_have_count(1)
            page.get_by_role("link", name="Look again").click()
            where = page.get_by_role("table", name="Dead letters by node")
            expect(where).to_contain_text("2 moved")
            expect(page.get_by_text("No dead letter waits.")).to_be_visible()
        assert topic_stats(broker.http, "orders")["channels"]["billing"]["depth"] == 2
