"""The application: every part's routes and middlewares."""

from aiohttp import web

from nsqfast.nsqadmin.access.middleware import add_access
from nsqfast.nsqadmin.actions import routes as actions
from nsqfast.nsqadmin.api import routes as api
from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.messages import routes as messages
from nsqfast.nsqadmin.problems import routes as problems
from nsqfast.nsqadmin.web import charts, site


def make_app(app: web.Application, context: Context) -> None:
    """Give `app` its middlewares and its routes, and finally move the routes below --base-path."""
    add_access(app, context)
    api.add_routes(app, context)
    problems.add_routes(app, context)
    pages = site.add_routes(app, context)
    messages.add_routes(app, context, pages)
    charts.add_routes(app, context)
    actions.add_routes(app, context, pages.rows_of)
    if context.urls.base:
        move_below(app.router, context.urls.decoded_base)


def move_below(router: web.UrlDispatcher, base: str) -> None:
    """Move all routes. The router does not accept a path with `{`, or with characters to quote, as part of a route."""
    for resource in router.resources():
        router.unindex_resource(resource)
        resource.add_prefix(base)
        router.index_resource(resource)
