"""Pages of messages, the same as JSON, changes, and the tail."""

from aiohttp import web

from nsqfast.nsqadmin.access.permissions import admin_only
from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.messages.changes import Changes
from nsqfast.nsqadmin.messages.look import Looker
from nsqfast.nsqadmin.messages.masks import Masks
from nsqfast.nsqadmin.messages.page import DEFERRED, MESSAGES, TOPIC_MESSAGES, MessagePages
from nsqfast.nsqadmin.messages.tail import Tails
from nsqfast.nsqadmin.web.site import Site


def add_routes(app: web.Application, context: Context, site: Site) -> None:
    """Bodies are left out for users who may not see them; the rest is for everybody who may read."""
    masks = Masks(context.options.mask_json)
    pages = MessagePages(context, site, Looker(context.upstream, masks))
    app.router.add_get(MESSAGES.route, pages.show_channel)
    app.router.add_get(DEFERRED.route, pages.show_deferred)
    app.router.add_get(TOPIC_MESSAGES.route, pages.show_topic)
    app.router.add_get("/ui/messages", pages.answer)
    Changes(context).add_routes(app)
    tails = Tails(context, masks)
    app.router.add_post("/ui/tail", admin_only(tails.serve))
    app.on_shutdown.append(tails.stop)
