"""The pages of messages, and the same as JSON: waiting ones of a channel or a topic, and deferred ones of a channel.

A page shows each node's messages at the moment that stands beside them.
"""

import datetime as dt
from dataclasses import replace
from functools import partial

from aiohttp import web

from nsqfast.nsqadmin.access.answers import answer_json
from nsqfast.nsqadmin.access.permissions import admin_only, may_see_bodies
from nsqfast.nsqadmin.access.users import user_of
from nsqfast.nsqadmin.cluster.model import NodeParts
from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.messages import dead_page
from nsqfast.nsqadmin.messages.bodies import Masks
from nsqfast.nsqadmin.messages.calendar import LABELS, SCALES, Calendar, ask_calendar
from nsqfast.nsqadmin.messages.changes import Changes
from nsqfast.nsqadmin.messages.peek import (
    FILTER_SIZE_MAX,
    PIECE_SIZE_MAX,
    Peek,
    PeekQuery,
    read_peek_query,
    write_since,
)
from nsqfast.nsqadmin.messages.tail import Tails
from nsqfast.nsqadmin.results import Result
from nsqfast.nsqadmin.web.pages.shares import find_channel, find_topic
from nsqfast.nsqadmin.web.pages.topics import make_tabs, tab_texts
from nsqfast.nsqadmin.web.request import PageRequest, Query
from nsqfast.nsqadmin.web.site import Site
from nsqfast.nsqadmin.web.texts import Link
from nsqfast.nsqadmin.web.view import Page, PageNotFoundError, View

VIEW_LABELS = {"json": "JSON", "text": "Text", "hex": "Hex"}
STATE_LABELS = {"ready": "Ready", "in_flight": "In flight"}
FROM_BEGIN = {"offset": "", "from": "", "node": ""}  # a place in one state is none in another
NO_FILTER = "Only admins may search bodies while --mask-json hides some of what they hold."


async def _never_built(_request: PageRequest) -> View:
    raise AssertionError("made for each request, because nodes are asked for it")


def _page(name: str, route: str) -> Page:
    return Page(name, route, _never_built, "messages.html", "topics", is_live=False)


MESSAGES = _page("messages", "/topics/{topic}/{channel}/messages")
DEFERRED = _page("deferred", "/topics/{topic}/{channel}/deferred")
TOPIC_MESSAGES = _page("topic-messages", "/messages")


class MessagePages:
    def __init__(self, context: Context, site: Site, masks: Masks) -> None:
        self._context = context
        self._site = site
        self._masks = masks

    async def show(self, page: Page, request: web.Request) -> web.Response:
        query = Query(request.query.items())
        topic = request.match_info.get("topic") or request.query.get("topic", "")
        channel = request.match_info.get("channel", "")
        state = "deferred" if page is DEFERRED else ""
        self._context.poller.seen()
        try:
            peek = await self._peek(request, read_peek_query(query, topic, channel, state))
        except PageNotFoundError as error:
            return await self._site.not_found(request, error)
        calendar = None
        if page is DEFERRED:
            by = query.choice("by", SCALES)
            calendar = await ask_calendar(self._context.upstream, peek.nodes, topic, channel, by)
        values = {"page": page, "query": query, "at": self._context.poller.cluster.at}
        view = self._view(peek, query, page, calendar)
        return await self._site.respond(request, page.template, view, values)

    async def answer(self, request: web.Request) -> web.Response:
        """Serve GET /ui/messages?topic&channel&state&limit&offset&filter&since&node as JSON."""
        query = Query(request.query.items())
        topic, channel = query.get("topic"), query.get("channel")
        try:
            peek = await self._peek(request, read_peek_query(query, topic, channel))
        except PageNotFoundError as error:
            raise web.HTTPNotFound(text=str(error)) from None
        return answer_json(
            {
                "topic": topic,
                "channel": channel,
                "state": peek.asked.state,
                "may_see_bodies": peek.may_see,
                "nodes": peek.answers,
            }
        )

    async def _peek(self, request: web.Request, asked: PeekQuery) -> Peek:
        """Ask the nodes, and audit it."""
        parts = await self._find_parts(asked)
        is_admin, may_see = user_of(request).is_admin, may_see_bodies(request)
        may_filter = may_see and (is_admin or not self._masks)
        if not may_filter:
            asked = replace(asked, filter="")
        known = self._context.poller.cluster.nodes_of(parts)
        nodes = [node for key, node in known.items() if asked.node in ("", key)]
        peek = Peek(asked, self._masks, is_admin, may_see, may_filter)
        await peek.ask(self._context.upstream, nodes)
        await self._note(request, peek)
        return peek

    async def _find_parts(self, asked: PeekQuery) -> NodeParts:
        context, cluster = self._context, self._context.poller.cluster
        if not asked.channel:
            return (await find_topic(context, cluster, asked.topic)).parts
        _, channel = await find_channel(context, cluster, asked.topic, asked.channel)
        return channel.parts

    async def _note(self, request: web.Request, peek: Peek) -> None:
        asked, answers = peek.asked, peek.answers
        target = {"topic": asked.topic, "channel": asked.channel, "node": asked.node}
        effect: dict[str, object] = {
            "state": asked.state,
            "bodies": peek.may_see,
            "messages": sum(len(answer.messages) for answer in answers),
        }
        search = {"filter": asked.filter, "since": write_since(asked.since_ns, dt.UTC)}
        effect |= {name: value for name, value in search.items() if value}
        results = [Result(answer.node, not answer.is_failed, answer.sentence) for answer in answers]
        audit = self._context.audit
        await audit.note(request, "peek", target, effect=effect, results=results)

    def _view(self, peek: Peek, query: Query, page: Page, calendar: Calendar | None) -> View:
        asked, urls = peek.asked, self._context.urls
        crumbs = [Link("Topics", urls.to("/topics")), Link(asked.topic, urls.topic(asked.topic))]
        if asked.channel:
            crumbs.append(Link(asked.channel, urls.channel(asked.topic, asked.channel)))
        what = "Deferred messages" if page is DEFERRED else "Messages"
        tabs = (
            make_tabs(urls, query, asked.topic, asked.channel, page.name) if asked.channel else []
        )
        counts = tab_texts(self._context.poller.cluster.channel(asked.topic, asked.channel))
        return View(
            f"{what} of {asked.channel or asked.topic}",
            crumbs=crumbs,
            texts=counts if tabs else {},
            data={
                "topic": asked.topic,
                "channel": asked.channel,
                "state": asked.state,
                "view": asked.view,
                "filter": asked.filter,
                "since": write_since(asked.since_ns, dt.UTC),
            },
            facts={
                "asked": asked,
                "since": write_since(asked.since_ns),
                "peek": peek,
                "tabs": tabs,
                "calendar": calendar,
                "scale_links": query.links("by", LABELS, calendar.by, "hours") if calendar else [],
                "state_links": query.links("state", STATE_LABELS, asked.state, **FROM_BEGIN)
                if asked.channel and page is MESSAGES
                else [],
                "view_links": query.links("view", VIEW_LABELS, asked.view),
                "no_filter": NO_FILTER if peek.may_see and not peek.may_filter else "",
                "filter_size_max": FILTER_SIZE_MAX,
                "piece_max": min(asked.piece_max(len(peek.answers)), PIECE_SIZE_MAX),
            },
        )


def add_routes(app: web.Application, context: Context, site: Site) -> None:
    """Bodies are left out for users who may not see them; the rest is for everybody who may read."""
    masks = Masks(context.options.mask_json)
    pages = MessagePages(context, site, masks)
    for page in (MESSAGES, DEFERRED, TOPIC_MESSAGES):
        app.router.add_get(page.route, partial(pages.show, page))
    app.router.add_get("/ui/messages", pages.answer)
    dead_page.add_routes(app, context, site, masks)
    Changes(context).add_routes(app)
    tails = Tails(context, masks)
    app.router.add_post("/ui/tail", admin_only(tails.serve))
    app.on_shutdown.append(tails.stop)
