"""The pages, a module each."""

from nsqfast.nsqadmin.web.page import topics

PAGES = (topics.PAGE,)
