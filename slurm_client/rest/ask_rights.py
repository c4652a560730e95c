"""Finds the rights of a Slurm user by calls to slurmrestd, and reads the replies."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

from slurm_client import ownership
from slurm_client.protocol import Slurm
from slurm_client.rest.http import Request
from slurm_client.rights import Association, UserRights
from slurm_client.server import Capabilities

_Read = TypeVar("_Read")
_NO_CALLS = ("", 0)


class Ask(Protocol):
    """Sends a request and reads the reply. Raises SlurmError."""

    async def __call__(self, request: Request, read: Callable[[Mapping[str, Any]], _Read]) -> _Read: ...


async def rights(ask: Ask, slurm: Slurm, user_id: int | None, own: str) -> UserRights:
    """Returns the rights of a user. `user_id` is None for the token's own user, named `own`."""
    user = own if user_id is None else await _name_of(ask, user_id)
    if not user:
        return UserRights(unknown=user is None)
    server = await slurm.connect()
    associations = await _associations(ask, server, user) if server.books else None
    accounts = {each.account for each in associations or ()}
    admitting = (each.name for each in await slurm.reservations() if each.admits(user, accounts))
    return UserRights(user, associations=associations, reservations=tuple(admitting))


async def _name_of(ask: Ask, user_id: int) -> str | None:
    """Returns the name of a user, "" if Slurm does not report the name, or None if slurmctld cannot
    resolve the user. Makes a call as the user, and looks for the user in slurmctld's statistics of
    calls. slurmctld counts calls for an unknown user as calls of `nobody` (24.11, 26.05)."""
    diag = Request("GET", "diag/")
    before = await ask(diag, _callers)
    await ask(Request("GET", "jobs/state/", "job_id=1", user_id=user_id), lambda _: None)
    after = await ask(diag, _callers)
    name, calls = after.get(user_id, _NO_CALLS)
    if calls > before.get(user_id, _NO_CALLS)[1]:
        return name
    of_nobody = [each.get(ownership.NOBODY, _NO_CALLS)[1] for each in (before, after)]
    return None if of_nobody[0] < of_nobody[1] else ""


async def _associations(ask: Ask, server: Capabilities, user: str) -> tuple[Association, ...]:
    path = f"/slurmdb/{server.api_version}/associations/"
    request = Request("GET", path, f"user={quote(user)}")
    return await ask(request, partial(_in_cluster, cluster=server.cluster))


def _callers(document: Mapping[str, Any]) -> dict[int, tuple[str, int]]:
    """Returns each user's name and number of calls, from the reply to GET diag. The name is empty if
    slurmrestd does not know the user."""
    counted = (document.get("statistics") or {}).get("rpcs_by_user") or ()
    return {int(each["user_id"]): (str(each.get("user") or ""), int(each["count"])) for each in counted}


def _in_cluster(document: Mapping[str, Any], cluster: str) -> tuple[Association, ...]:
    """Returns the associations of a cluster, from the reply to GET associations. Several clusters may
    share a slurmdbd."""
    return tuple(
        Association(
            account=str(entry["account"]),
            qos=tuple(map(str, entry.get("qos") or ())),
            partition=str(entry.get("partition") or ""),
            default=bool(entry.get("is_default")),
        )
        for entry in document["associations"]
        if entry["cluster"] == cluster
    )
