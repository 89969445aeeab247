"""/policies: what holds for which queues, see `policies`."""

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING

import orjson

from nsqfast.errors import OptionsError
from nsqfast.net.http_message import Request, Response
from nsqfast.net.http_reply import HttpError, error_answer, json_answer, parameters, read_switch
from nsqfast.wire.gotext import os_error

if TYPE_CHECKING:  # its expressions take time to load, and most brokers have no policies
    from collections.abc import Awaitable, Callable

    from nsqfast.nsqd.broker import Broker
    from nsqfast.nsqd.policies import Change, Policies

BODY_SIZE_MAX = 64 * 1024
CHANGES_MAX = 1000  # that an answer lists


class PolicyPage:
    """A handler; `answer` is one of the functions below."""

    def __init__(
        self, broker: "Broker", answer: "Callable[[Policies, Request], Awaitable[Response]]"
    ) -> None:
        self._broker = broker
        self._answer = answer

    async def __call__(self, request: Request) -> Response:
        """Load the policies in a thread if they are not, because the loop has others to serve."""
        await asyncio.to_thread(import_module, "nsqfast.nsqd.policies")
        try:
            return await self._answer(self._broker.load_policies(), request)
        except HttpError as error:
            return error_answer(error.status, error.code, reason=error.reason)


async def show_all(policies: "Policies", _request: Request) -> Response:
    """All of them, and whether they can be changed here."""
    shown = [policy.show() for policy in policies.rules.by_name.values()]
    return json_answer({"policies": shown, "read_only": bool(policies.file)})


async def show_one(policies: "Policies", request: Request) -> Response:
    """One of them."""
    policy = policies.rules.by_name.get(_name(request))
    if policy is None:
        raise HttpError(404, "POLICY_NOT_FOUND")
    return json_answer(policy.show())


async def put(policies: "Policies", request: Request) -> Response:
    """Add or replace one; ?dry_run=true only says what that would change."""
    from nsqfast.nsqd.policies import parse

    is_trial = _is_trial(policies, request)
    if request.oversize:
        raise HttpError(413, "INVALID_POLICY", f"it has more than {BODY_SIZE_MAX} bytes")
    try:
        policy = parse(orjson.loads(bytes(request.body)), _name(request))
        changes = await policies.put(policy, is_trial=is_trial)
    except ValueError:
        raise HttpError(400, "INVALID_POLICY", "the body is no JSON") from None
    except OptionsError as error:
        raise HttpError(400, "INVALID_POLICY", str(error)) from None
    except OSError as error:
        raise HttpError(500, "POLICIES_NOT_KEPT", os_error(error)) from None
    return _show_changes(changes)


async def delete(policies: "Policies", request: Request) -> Response:
    """Remove one; ?dry_run=true only says what that would change."""
    try:
        changes = await policies.remove(_name(request), is_trial=_is_trial(policies, request))
    except KeyError:
        raise HttpError(404, "POLICY_NOT_FOUND") from None
    except OSError as error:
        raise HttpError(500, "POLICIES_NOT_KEPT", os_error(error)) from None
    return _show_changes(changes)


def _show_changes(changes: "list[Change]") -> Response:
    shown = [change.show() for change in changes[:CHANGES_MAX]]
    dropping = sum(change.drops for change in changes)
    return json_answer({"changed": len(changes), "dropping": dropping, "changes": shown})


def _is_trial(policies: "Policies", request: Request) -> bool:
    if policies.file:
        raise HttpError(409, "POLICIES_IN_FILE", "they are those of --policy-file")
    return read_switch(parameters(request), "dry_run")


def _name(request: Request) -> str:
    return request.path.rpartition("/")[2]
