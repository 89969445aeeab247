"""The pages of messages, and the same as JSON: waiting ones of a channel or a topic, and deferred ones of a channel.

A page shows each node's messages at the moment that stands beside them.
"""

import datetime as dt
from dataclasses import dataclass

import msgspec
from aiohttp import web

from nsqfast.nsqadmin.access.permissions import admin_only, may_see_bodies
from nsqfast.nsqadmin.access.users import user_of
from nsqfast.nsqadmin.cluster.model import NodeParts
from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.messages.bodies import Masks
from nsqfast.nsqadmin.messages.changes import Changes
from nsqfast.nsqadmin.messages.peek import (
    FILTER_SIZE_MAX,
    PIECE_SIZE_MAX,
    NodeMessages,
    Peeker,
    PeekQuery,
    nodes_of,
    read_peek_query,
    without_filter,
    write_since,
)
from nsqfast.nsqadmin.messages.tail import Tails
from nsqfast.nsqadmin.results import Result, outcome_of
from nsqfast.nsqadmin.web.pages.channel import TABS, make_tab, message_tabs, tab_texts
from nsqfast.nsqadmin.web.request import PageRequest, Query
from nsqfast.nsqadmin.web.site import Site
from nsqfast.nsqadmin.web.texts import Link
from nsqfast.nsqadmin.web.view import Page, PageNotFoundError, View, find_similar_names

VIEW_LABELS = (("json", "JSON"), ("text", "Text"), ("hex", "Hex"))
STATE_LABELS = (("ready", "Ready"), ("in_flight", "In flight"))
NO_FILTER = "Only admins may search bodies while --mask-json hides some of what they hold."


async def _never_built(_request: PageRequest) -> View:
    raise AssertionError("made for each request, because nodes are asked for it")


MESSAGES = Page(
    "messages",
    "/topics/{topic}/{channel}/messages",
    _never_built,
    "messages.html",
    "topics",
    is_live=False,
)
DEFERRED = Page(
    "deferred",
    "/topics/{topic}/{channel}/deferred",
    _never_built,
    "messages.html",
    "topics",
    is_live=False,
)
TOPIC_MESSAGES = Page(
    "topic-messages", "/messages", _never_built, "messages.html", "topics", is_live=False
)


@dataclass(frozen=True, slots=True)
class Peek:
    """A look and its result."""

    look: PeekQuery
    pictures: list[NodeMessages]
    may_see: bool
    may_filter: bool


class MessagePages:
    """The pages of one nsqadmin; also as JSON."""

    def __init__(self, context: Context, site: Site, looker: Peeker) -> None:
        self._context = context
        self._site = site
        self._looker = looker

    async def show_channel(self, request: web.Request) -> web.Response:
        """Ready or in-flight messages."""
        match = request.match_info
        return await self._show(request, MESSAGES, match["topic"], match["channel"])

    async def show_deferred(self, request: web.Request) -> web.Response:
        """Deferred messages."""
        match = request.match_info
        return await self._show(request, DEFERRED, match["topic"], match["channel"], "deferred")

    async def show_topic(self, request: web.Request) -> web.Response:
        """Messages that no channel has taken yet."""
        return await self._show(request, TOPIC_MESSAGES, request.query.get("topic", ""), "")

    async def answer(self, request: web.Request) -> web.Response:
        """GET /ui/messages?topic&channel&state&limit&offset&filter&since&node"""
        query = Query(request.query.items())
        topic, channel = query.get("topic"), query.get("channel")
        try:
            sight = await self._see(request, read_peek_query(query, topic, channel))
        except PageNotFoundError as error:
            raise web.HTTPNotFound(text=str(error)) from None
        return json_answer(
            {
                "topic": topic,
                "channel": channel,
                "state": sight.look.state,
                "may_see_bodies": sight.may_see,
                "nodes": sight.pictures,
            }
        )

    async def _show(
        self, request: web.Request, page: Page, topic: str, channel: str, state: str = ""
    ) -> web.Response:
        query = Query(request.query.items())
        self._context.poller.seen()
        try:
            sight = await self._see(request, read_peek_query(query, topic, channel, state))
        except PageNotFoundError as error:
            return await self._site.not_found(request, error)
        values = {"page": page, "query": query, "at": self._context.poller.cluster.at}
        return await self._site.respond(
            request, page.template, self._view(sight, query, page), values
        )

    async def _see(self, request: web.Request, look: PeekQuery) -> Peek:
        """Ask the nodes, and audit it."""
        parts = await self._find_parts(look)
        is_admin = user_of(request).is_admin
        may_see = may_see_bodies(request)
        may_filter = may_see and (is_admin or not self._looker.masks)
        if not may_filter:
            look = without_filter(look)
        nodes = nodes_of(parts, self._context.poller.cluster.nodes, look.node)
        pictures = await self._looker.look(look, nodes, may_see=may_see, is_admin=is_admin)
        await self._note(request, look, pictures, may_see=may_see)
        return Peek(look, pictures, may_see, may_filter)

    async def _find_parts(self, look: PeekQuery) -> NodeParts:
        cluster, urls = self._context.poller.cluster, self._context.urls
        topic = cluster.topics.get(look.topic)
        if topic is None:
            near = await find_similar_names(look.topic, cluster.topics)
            raise PageNotFoundError(
                "topic", look.topic, [(each, urls.topic(each)) for each in near]
            )
        if not look.channel:
            return topic.parts
        channel = topic.channels.get(look.channel)
        if channel is None:
            near = await find_similar_names(look.channel, topic.channels)
            links = [(each, urls.channel(topic.name, each)) for each in near]
            links = links or [(topic.name, urls.topic(topic.name))]
            raise PageNotFoundError("channel", f"{topic.name}/{look.channel}", links)
        return channel.parts

    async def _note(
        self, request: web.Request, look: PeekQuery, pictures: list[NodeMessages], *, may_see: bool
    ) -> None:
        given = {"topic": look.topic, "channel": look.channel, "node": look.node}
        target = {name: value for name, value in given.items() if value}
        effect: dict[str, object] = {
            "state": look.state,
            "bodies": may_see,
            "messages": sum(len(picture.messages) for picture in pictures),
        }
        if look.filter:
            effect["filter"] = look.filter
        if look.since_ns:
            effect["since"] = write_since(look.since_ns, dt.UTC)
        results = [
            Result(picture.node, not picture.is_failed, picture.sentence) for picture in pictures
        ]
        audit = self._context.audit
        await audit.note(
            request, "peek", target, effect=effect, results=results, outcome=outcome_of(results)
        )

    def _view(self, sight: Peek, query: Query, page: Page) -> View:
        look, urls = sight.look, self._context.urls
        crumbs = [Link("Topics", urls.to("/topics")), Link(look.topic, urls.topic(look.topic))]
        if look.channel:
            crumbs.append(Link(look.channel, urls.channel(look.topic, look.channel)))
        what = "Deferred messages" if page is DEFERRED else "Messages"
        tabs = self._tabs(look, page) if look.channel else []
        topic = self._context.poller.cluster.topics.get(look.topic)
        counts = tab_texts(topic.channels.get(look.channel) if topic else None)
        return View(
            f"{what} of {look.channel or look.topic}",
            crumbs=crumbs,
            texts=counts if tabs else {},
            data={
                "topic": look.topic,
                "channel": look.channel,
                "state": look.state,
                "view": look.view,
                "filter": look.filter,
                "since": write_since(look.since_ns, dt.UTC),
            },
            facts={
                "look": look,
                "since": write_since(look.since_ns),
                "sight": sight,
                "tabs": tabs,
                "state_links": _links(query, "state", look.state, STATE_LABELS)
                if look.channel and page is MESSAGES
                else [],
                "view_links": _links(query, "view", look.view, VIEW_LABELS, keeps_place=True),
                "no_filter": NO_FILTER if sight.may_see and not sight.may_filter else "",
                "filter_size_max": FILTER_SIZE_MAX,
                "piece_max": min(look.piece_max(len(sight.pictures)), PIECE_SIZE_MAX),
            },
        )

    def _tabs(self, look: PeekQuery, page: Page) -> list[Link]:
        urls = self._context.urls
        channel = urls.channel(look.topic, look.channel)
        tabs = [make_tab(tab.name, tab.label, f"{channel}?tab={tab.name}") for tab in TABS]
        return tabs + message_tabs(urls, look.topic, look.channel, page.name)


def _links(
    query: Query,
    name: str,
    current: str,
    labels: tuple[tuple[str, str], ...],
    *,
    keeps_place: bool = False,
) -> list[Link]:
    fresh = {} if keeps_place else {"offset": "", "from": "", "node": ""}
    return [
        Link(label, query.with_({**fresh, name: value}), value == current)
        for value, label in labels
    ]


def json_answer(answer: object, status: int = 200) -> web.Response:
    """JSON of any object that msgspec can encode."""
    return web.Response(
        body=msgspec.json.encode(answer), status=status, content_type="application/json"
    )


def add_routes(app: web.Application, context: Context, site: Site) -> None:
    """Bodies are left out for users who may not see them; the rest is for everybody who may read."""
    masks = Masks(context.options.mask_json)
    pages = MessagePages(context, site, Peeker(context.upstream, masks))
    app.router.add_get(MESSAGES.route, pages.show_channel)
    app.router.add_get(DEFERRED.route, pages.show_deferred)
    app.router.add_get(TOPIC_MESSAGES.route, pages.show_topic)
    app.router.add_get("/ui/messages", pages.answer)
    Changes(context).add_routes(app)
    tails = Tails(context, masks)
    app.router.add_post("/ui/tail", admin_only(tails.serve))
    app.on_shutdown.append(tails.stop)
