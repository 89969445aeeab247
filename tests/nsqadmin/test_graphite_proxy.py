"""What --proxy-graphite passes on."""

import http.server
import threading

import pytest

from support.access import run_admin
from support.strict_http import StrictHTTPServer
from support.web import get


@pytest.fixture
def graphite():
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            for name, value in self.server.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"what it says")

        def log_message(self, *_):
            pass

    server = StrictHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "image/png"}, 200),
        ({"Content-Type": "Image/SVG+xml"}, 200),
        ({"Content-Type": "application/json; charset=utf-8"}, 200),
        ({"Content-Type": "text/html"}, 502),
        ({"Content-Type": "text/javascript"}, 502),
        ({"Content-Type": "application/pdf"}, 502),
        ({"Content-Type": "text/html; image/png"}, 502),
        ({}, 502),
        ({"Content-Type": "image/png", "Content-Encoding": "gzip"}, 502),
    ],
)
def test_only_images_and_json_come_through(graphite, headers, status):
    graphite.headers = headers
    url = f"http://127.0.0.1:{graphite.server_port}"
    with run_admin("--proxy-graphite", f"--graphite-url={url}") as admin:
        answer = get(admin.http, "/render?target=x")
    assert answer.status == status
    assert (answer.body == b"what it says") is (status == 200)
