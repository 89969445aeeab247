"""What the `build` of a page gets."""

from collections.abc import Mapping
from dataclasses import dataclass

from nsqfast.nsqadmin.access.roles import Role
from nsqfast.nsqadmin.context import Context
from nsqfast.nsqadmin.live.model import Cluster
from nsqfast.nsqadmin.web.facts import FactsOfTick, TopicFacts
from nsqfast.nsqadmin.web.query import Query


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A page, as far as its View depends on who asks: the role, not the name.

    `match` has the parts of the route, unquoted. All that depends on time reckons from `cluster.at`.
    """

    context: Context
    cluster: Cluster
    role: Role
    match: Mapping[str, str]
    query: Query
    facts: FactsOfTick

    async def topic_facts(self) -> list[TopicFacts]:
        """Of all topics, sorted by name; the list is shared, so nobody may change it."""
        return await self.facts.topics(self.cluster)

    @property
    def is_admin(self) -> bool:
        """Actions are shown."""
        return self.role is Role.ADMIN
