"""The application: every part's routes, and what every request goes through."""

from aiohttp import web

from nsqfast.nsqadmin.access.middleware import add_access
from nsqfast.nsqadmin.actions import routes as actions
from nsqfast.nsqadmin.alerts import routes as alerts
from nsqfast.nsqadmin.api import routes as api
from nsqfast.nsqadmin.charts import series
from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.messages import routes as messages
from nsqfast.nsqadmin.web import site


def make_app(app: web.Application, context: Context) -> None:
    """Gives `app` its middlewares and routes, below --base-path."""
    add_access(app, context)
    api.add_routes(app, context)
    alerts.add_routes(app, context)
    pages = site.add_routes(app, context)
    messages.add_routes(app, context, pages)
    series.add_routes(app, context)
    actions.add_routes(app, context, pages.rows_of)
