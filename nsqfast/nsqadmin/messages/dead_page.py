"""/topics/T/C/dead: the dead letters of a channel, the same as JSON, their redrive and their end; see docs/ADMIN.md."""

from collections.abc import Mapping
from dataclasses import replace

from aiohttp import web

from nsqfast.nsqadmin.access.answers import answer_json
from nsqfast.nsqadmin.access.origin import FORM
from nsqfast.nsqadmin.access.permissions import admin_only, may_see_bodies
from nsqfast.nsqadmin.access.users import user_of
from nsqfast.nsqadmin.actions.order import read_body
from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.messages.bodies import Masks
from nsqfast.nsqadmin.messages.dead_letters import GROUPS_MAX, REASONS, ROWS_MAX, DeadLetters
from nsqfast.nsqadmin.messages.peek import Peek, read_peek_query
from nsqfast.nsqadmin.messages.redrives import (
    LIMIT_MAX,
    RATE_MAX,
    RedriveOrder,
    check,
    check_search,
    tell_all,
)
from nsqfast.nsqadmin.results import Result, outcome_of
from nsqfast.nsqadmin.web.pages.shares import find_channel
from nsqfast.nsqadmin.web.pages.topics import make_tabs, tab_texts
from nsqfast.nsqadmin.web.request import PageRequest, Query
from nsqfast.nsqadmin.web.site import Site
from nsqfast.nsqadmin.web.texts import Link
from nsqfast.nsqadmin.web.view import Page, PageNotFoundError, View
from nsqfast.wire import search

VIEW_LABELS = {"json": "JSON", "text": "Text", "hex": "Hex"}
REASON_LABELS = {"": "Any reason"} | {each: each.replace("_", " ").capitalize() for each in REASONS}
AUDITED = {"start": "redrive", "delete": "delete_dead_letters", "cancel": "cancel_redrive"}
SEARCH_HELP = (
    'Fields of JSON and texts, all of which the body has to have: user.id:17 "card declined".'
)
NONE_THERE = "No node that answers has dead letters."
NOBODY = {"start": NONE_THERE, "delete": NONE_THERE, "cancel": "No redrive is running."}


async def _never_built(_request: PageRequest) -> View:
    raise AssertionError("made for each request, because nodes are asked for it")


PAGE = Page(
    "dead", "/topics/{topic}/{channel}/dead", _never_built, "dead.html", "topics", is_live=False
)


class DeadPages:
    """The page, its form, and the same as JSON."""

    def __init__(self, context: Context, site: Site, masks: Masks) -> None:
        self._context = context
        self._site = site
        self._masks = masks

    async def show(self, request: web.Request) -> web.Response:
        query = Query(request.query.items())
        self._context.poller.seen()
        names = request.match_info["topic"], request.match_info["channel"]
        chosen = query.get("source"), query.get("search"), query.choice("reason", REASON_LABELS)
        order = RedriveOrder(*names, "start", *chosen)
        return await self._respond(request, query, order)

    async def answer(self, request: web.Request) -> web.Response:
        """Serve GET /ui/dead?topic&channel&source&search&reason&node as JSON."""
        query = Query(request.query.items())
        names = query.get("topic"), query.get("channel")
        if text := check_search(query.get("search")):
            raise web.HTTPBadRequest(text=text)
        try:
            letters, peek = await self._look(request, query, *names, query.get("source"))
        except PageNotFoundError as error:
            raise web.HTTPNotFound(text=str(error)) from None
        given = {"topic": letters.topic, "channel": letters.channel, "source": letters.source}
        more = {"waiting": letters.waiting, "may_see_bodies": peek.may_see}
        return answer_json({**given, **more, "nodes": letters.nodes})

    async def redrive(self, request: web.Request) -> web.Response:
        """Serve POST /ui/redrives, JSON or the page's form: 409 if nobody confirmed it, or nothing is there to do."""
        order = await read_body(request, RedriveOrder)
        (text, status), results = check(order), list[Result]()
        nodes = self._context.poller.cluster.channel_nodes(order.topic, order.channel)
        if not nodes:
            raise web.HTTPNotFound(text="no such channel")
        if not text:
            known = DeadLetters(order.topic, order.channel, order.source)
            await known.ask(self._context.upstream, list(nodes.values()))
            results = await tell_all(self._context, order, known, nodes)
            text = NOBODY[order.do]
            if results:
                await self._note(request, order, known, results)
                failed = [result for result in results if not result.ok]
                text = f"{failed[0].node}: {failed[0].text}" if failed else ""
                status = 502 if failed else 200
        if request.content_type == FORM:
            names = "source", "search", "reason"
            query = Query([(name, getattr(order, name)) for name in names])
            return await self._respond(request, query, order, results, text, status)
        message = {"message": text} if text else {}
        return answer_json({**message, "results": results}, status)

    async def _note(
        self,
        request: web.Request,
        order: RedriveOrder,
        known: DeadLetters,
        results: list[Result],
    ) -> None:
        given = {
            "waiting": sum(each.waiting for each in known.nodes if order.concerns(each)),
            "source": order.source,
            "search": order.search,
            "reason": order.reason,
            "rate": order.rate,
            "limit": order.limit,
        }
        await self._context.audit.note(
            request,
            AUDITED[order.do],
            {"topic": order.topic, "channel": order.channel},
            effect={name: value for name, value in given.items() if value and order.do != "cancel"},
            results=results,
            outcome=outcome_of(results),
        )
        self._context.poller.ask_now()

    async def _look(
        self, request: web.Request, query: Query, topic: str, channel: str, source: str
    ) -> tuple[DeadLetters, Peek]:
        """Ask the nodes, and audit it; PageNotFoundError."""
        cluster = self._context.poller.cluster
        _, found = await find_channel(self._context, cluster, topic, channel)
        asked = read_peek_query(query, topic, channel, "ready")
        asked = replace(asked, filter="", search=query.get("search"))
        is_admin, may_see = user_of(request).is_admin, may_see_bodies(request)
        may_filter = may_see and (is_admin or not self._masks)
        if not may_filter:
            asked = replace(asked, search="")
        peek = Peek(asked, self._masks, is_admin, may_see, may_filter)
        known = cluster.nodes_of(found.parts)
        nodes = [node for key, node in known.items() if asked.node in ("", key)]
        letters = DeadLetters(topic, channel, source, query.choice("reason", REASON_LABELS))
        await letters.ask(self._context.upstream, nodes)
        if not check_search(asked.search):
            await letters.peek(self._context.upstream, nodes, peek)
        for each in letters.nodes:
            if each.redrive and not may_see:
                each.redrive.filter = each.redrive.search = ""
        effect: dict[str, object] = {"state": "dead", "bodies": may_see}
        effect |= {"messages": len(letters.messages())}
        chosen = {"search": asked.search, "reason": letters.reason}
        effect |= {name: value for name, value in chosen.items() if value}
        results = [Result(each.node, not each.is_failed, each.sentence) for each in letters.nodes]
        target = {"topic": topic, "channel": channel, "node": asked.node}
        await self._context.audit.note(request, "peek", target, effect=effect, results=results)
        return letters, peek

    async def _respond(
        self,
        request: web.Request,
        query: Query,
        order: RedriveOrder,
        told: list[Result] | None = None,
        text: str = "",
        status: int = 200,
    ) -> web.Response:
        topic, channel, urls = order.topic, order.channel, self._context.urls
        try:
            letters, peek = await self._look(request, query, topic, channel, order.source)
        except PageNotFoundError as error:
            return await self._site.not_found(request, error)
        messages = letters.messages()
        cluster = self._context.poller.cluster
        page, sources = urls.channel(topic, channel) + "/dead", letters.sources

        def link(name: str, labels: Mapping[str, str], *chosen: str) -> list[Link]:
            links = query.links(name, labels, *chosen)
            return [replace(each, href=page + each.href) for each in links]

        view = View(
            f"Dead letters of {channel}",
            crumbs=[
                Link("Topics", urls.to("/topics")),
                Link(topic, urls.topic(topic)),
                Link(channel, urls.channel(topic, channel)),
            ],
            texts=tab_texts(cluster.channel(topic, channel)),
            facts={
                "letters": letters,
                "order": order,
                "asked": peek.asked,
                "peek": peek,
                "page": page,
                "messages": messages[:ROWS_MAX],
                "sample_count": len(messages),
                "groups": letters.groups()[:GROUPS_MAX],
                "told": told or [],
                "text": text or check_search(peek.asked.search),
                "tabs": make_tabs(urls, query, topic, channel, PAGE.name),
                "view_links": link("view", VIEW_LABELS, peek.asked.view, "json"),
                "source_links": link("source", {each: each for each in sources}, letters.source),
                "reason_links": link("reason", REASON_LABELS, letters.reason),
                "reasons": REASON_LABELS,
                "search_help": SEARCH_HELP,
                "search_size_max": search.SIZE_MAX,
                "rate_max": RATE_MAX,
                "limit_max": LIMIT_MAX,
            },
        )
        values = {"page": PAGE, "query": query, "at": cluster.at}
        return await self._site.respond(request, PAGE.template, view, values, status)


def add_routes(app: web.Application, context: Context, site: Site, masks: Masks) -> None:
    """A redrive is for admins, since consumers get these messages again."""
    pages = DeadPages(context, site, masks)
    app.router.add_get(PAGE.route, pages.show)
    app.router.add_get("/ui/dead", pages.answer)
    app.router.add_post("/ui/redrives", admin_only(pages.redrive))
