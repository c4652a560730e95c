"""Reads the rights of users in Slurm, for messages about a refused account, QOS or reservation."""

import asyncio
from math import inf
from typing import Final

from slurm_client.errors import SlurmError
from slurm_client.protocol import Slurm
from slurm_client.rights import UserRights

_KEPT_S: Final = 60.0
_MAX_USERS_KEPT: Final = 1000
_ANSWER_WITHIN_S: Final = 1.0
_PAUSE_AFTER_FAILURE_S: Final = 30.0


class RightsOfUsers:
    """Reads the rights of one user at a time, and of each user at most once a minute. After a slow or
    failed answer, sends no request for 30 s, because the rights only serve messages, and must not delay
    submissions."""

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self._known: dict[int | None, tuple[float, UserRights]] = {}
        self._asking = asyncio.Lock()
        self._paused_until = -inf

    async def of(self, user_id: int | None) -> UserRights | None:
        """Returns the rights of a user, or None if Slurm does not answer. If `user_id` is None, the user
        is the token's own."""
        clock = asyncio.get_running_loop().time
        async with self._asking:
            until, rights = self._known.get(user_id, (-inf, UserRights()))
            if clock() < until:
                return rights
            if clock() < self._paused_until:
                return None
            try:
                async with asyncio.timeout(_ANSWER_WITHIN_S):
                    rights = await self._slurm.rights(user_id)
            except (TimeoutError, SlurmError):
                self._paused_until = clock() + _PAUSE_AFTER_FAILURE_S
                return None
            self._known.pop(user_id, None)
            self._known[user_id] = clock() + _KEPT_S, rights
            if len(self._known) > _MAX_USERS_KEPT:
                del self._known[next(iter(self._known))]
            return rights
