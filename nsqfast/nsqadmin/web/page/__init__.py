"""The pages, one module each."""

from nsqfast.nsqadmin.web.page import (
    audit,
    channel,
    counter,
    lookup,
    node,
    nodes,
    overview,
    problems,
    topic,
    topics,
)

PAGES = (
    overview.PAGE,
    topics.PAGE,
    topic.PAGE,
    channel.PAGE,
    nodes.PAGE,
    node.PAGE,
    lookup.PAGE,
    counter.PAGE,
    problems.PAGE,
    audit.PAGE,
)
