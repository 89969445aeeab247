"""Users and their roles. The middleware of `access` puts a User into every request."""

from dataclasses import dataclass
from enum import StrEnum

from aiohttp import web


class Role(StrEnum):
    """The permissions of a user."""

    NOBODY = "nobody"  # has to log in first
    VIEWER = "viewer"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class User:
    """The sender; `name` is '' if no login is configured or none was given."""

    name: str
    role: Role

    @property
    def is_admin(self) -> bool:
        """Whether the user may change the cluster."""
        return self.role is Role.ADMIN


USER_KEY: web.RequestKey[User] = web.RequestKey("nsqadmin.user", User)
# Why less of a request was believed than it claims.
DOUBT_KEY: web.RequestKey[str] = web.RequestKey("nsqadmin.doubt", str)


def user_of(request: web.Request) -> User:
    """The user that the middleware set before any handler runs."""
    return request[USER_KEY]
