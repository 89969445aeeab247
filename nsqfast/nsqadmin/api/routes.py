"""The paths of the JSON API."""

from functools import partial

from aiohttp import web
from aiohttp.typedefs import Handler

from nsqfast.nsqadmin.access.permissions import admin_only
from nsqfast.nsqadmin.api.answers import answer_misses, as_api, compress
from nsqfast.nsqadmin.api.config import Config
from nsqfast.nsqadmin.api.graphite import Graphite
from nsqfast.nsqadmin.api.reads import Reads
from nsqfast.nsqadmin.api.writes import Writes
from nsqfast.nsqadmin.cluster.discovery import Discovery
from nsqfast.nsqadmin.context import Context

TOPIC = "/api/topics/{topic:[^/]+}"
CHANNEL = TOPIC + "/{channel:[^/]+}"
NODE = "/api/nodes/{node:[^/]+}"
CONFIG = "/config/{name:[^/]+}"


def add_routes(app: web.Application, context: Context) -> None:
    """Scripts use these; our pages have paths of their own."""
    app.middlewares.append(compress)
    app.middlewares.append(answer_misses)
    discovery = Discovery(context.options, context.upstream)
    reads = Reads(discovery)
    writes = Writes(context, discovery)
    config, graphite = Config(context), Graphite(context)

    def add(method: str, path: str, ask: Handler) -> None:
        app.router.add_route(method, path, as_api(ask))

    for path in ("/ping", "/livez"):
        add("GET", path, ping)
    add("GET", "/readyz", partial(readyz, context))
    add("GET", "/api/topics", reads.shared(reads.topics))
    add("GET", TOPIC, reads.shared(reads.topic))
    add("GET", CHANNEL, reads.shared(reads.channel))
    add("GET", "/api/nodes", reads.shared(reads.nodes))
    add("GET", NODE, reads.shared(reads.node))
    add("GET", "/api/counter", reads.shared(reads.counter))
    add("GET", "/api/graphite", graphite.rate)
    add("GET", CONFIG, config.get)
    add("PUT", CONFIG, config.put)
    add("POST", "/api/topics", admin_only(writes.create))
    for path in (TOPIC, CHANNEL):
        add("POST", path, admin_only(writes.act))
        add("DELETE", path, admin_only(writes.delete))
    add("DELETE", NODE, admin_only(writes.tombstone))
    if context.options.proxy_graphite:
        add("GET", "/render", graphite.render)


async def readyz(context: Context, _request: web.Request) -> web.Response:
    """OK when the cluster was asked once: until then pages have nothing to show."""
    is_ready = context.poller.cluster.tick > 0
    text = "OK" if is_ready else "NOK - the cluster was not asked yet"
    return web.Response(text=text, status=200 if is_ready else 503)


async def ping(_request: web.Request) -> web.Response:
    return web.Response(text="OK")
