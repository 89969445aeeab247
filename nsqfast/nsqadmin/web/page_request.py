"""The input of a page's `build`."""

from collections.abc import Mapping
from dataclasses import dataclass

from nsqfast.nsqadmin.access.roles import Role
from nsqfast.nsqadmin.cluster.model import Cluster
from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.web.facts import FactsOfTick, TopicFacts
from nsqfast.nsqadmin.web.query import Query


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A page request, as far as its View depends on the viewer: the role, not the name.

    `match` has the parts of the route, unquoted. All times are relative to `cluster.at`.
    """

    context: Context
    cluster: Cluster
    role: Role
    match: Mapping[str, str]
    query: Query
    facts: FactsOfTick

    async def topic_facts(self) -> list[TopicFacts]:
        """All topics, sorted by name; the list is shared, so do not change it."""
        return await self.facts.topics(self.cluster)

    @property
    def is_admin(self) -> bool:
        """Whether to show actions."""
        return self.role is Role.ADMIN
