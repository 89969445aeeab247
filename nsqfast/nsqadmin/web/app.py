"""The application: every part's routes, and what every request goes through."""

from aiohttp import web
from aiohttp.typedefs import Handler

from nsqfast.nsqadmin.access.roles import USER_KEY, Role, User
from nsqfast.nsqadmin.context import Context


def make_app(app: web.Application, context: Context) -> None:
    """Gives `app` its middlewares and routes, below --base-path."""
    app.middlewares.append(_know_user)
    app.router.add_get(context.urls.to("/ping"), ping)


@web.middleware
async def _know_user(request: web.Request, handler: Handler) -> web.StreamResponse:
    request[USER_KEY] = User("", Role.ADMIN)
    return await handler(request)


async def ping(_request: web.Request) -> web.Response:
    """Always well."""
    return web.Response(text="OK")
