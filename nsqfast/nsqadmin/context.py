"""Shared by every part of one nsqadmin."""

from dataclasses import dataclass

from aiohttp import web

from nsqfast.nsqadmin.access.audit import Audit
from nsqfast.nsqadmin.cluster.client import Upstream
from nsqfast.nsqadmin.cluster.history import History
from nsqfast.nsqadmin.cluster.poller import Poller
from nsqfast.nsqadmin.cluster.probes import ConsumerWatch
from nsqfast.nsqadmin.options import Options
from nsqfast.nsqadmin.problems.alerts import ProblemWebhook
from nsqfast.nsqadmin.problems.report import Problems
from nsqfast.nsqadmin.urls import Urls


@dataclass(slots=True)
class Context:
    """Made by the server before it listens."""

    options: Options
    urls: Urls
    upstream: Upstream
    poller: Poller
    history: History
    problems: Problems
    webhook: ProblemWebhook
    consumers: ConsumerWatch
    audit: Audit
    start_time: float  # Unix time


CONTEXT: web.AppKey[Context] = web.AppKey("nsqadmin.context", Context)


def context_of(request: web.Request) -> Context:
    """The Context of the application that got the request."""
    return request.config_dict[CONTEXT]
