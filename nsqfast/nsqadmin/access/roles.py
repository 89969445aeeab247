"""Who asks, and what they may do. The middleware of `access` puts a User into every request; handlers ask here."""

from dataclasses import dataclass
from enum import StrEnum

from aiohttp import web

USER_KEY = "nsqadmin.user"


class Role(StrEnum):
    """What somebody may do."""

    NOBODY = "nobody"  # has to log in first
    VIEWER = "viewer"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class User:
    """Who asks; `name` is '' where no login is configured or none was given."""

    name: str
    role: Role

    @property
    def is_admin(self) -> bool:
        """May change the cluster."""
        return self.role is Role.ADMIN


def user_of(request: web.Request) -> User:
    """Set by the middleware before any handler runs."""
    user: User = request[USER_KEY]
    return user
