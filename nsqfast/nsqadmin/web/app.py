"""The application: every part's routes, and what every request goes through."""

from aiohttp import web

from nsqfast.nsqadmin.access.middleware import add_access
from nsqfast.nsqadmin.context import Context


def make_app(app: web.Application, context: Context) -> None:
    """Gives `app` its middlewares and routes, below --base-path."""
    add_access(app, context)
    app.router.add_get(context.urls.to("/ping"), ping)


async def ping(_request: web.Request) -> web.Response:
    """Always well."""
    return web.Response(text="OK")
