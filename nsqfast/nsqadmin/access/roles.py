"""Who asks, and in which role. The middleware of `access` puts a User into every request."""

from dataclasses import dataclass
from enum import StrEnum

from aiohttp import web


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


USER_KEY: web.RequestKey[User] = web.RequestKey("nsqadmin.user", User)
# Why less was believed of a request than it says.
DOUBT_KEY: web.RequestKey[str] = web.RequestKey("nsqadmin.doubt", str)


def user_of(request: web.Request) -> User:
    """Set by the middleware before any handler runs."""
    return request[USER_KEY]
