"""/hooks/v1/jobs/{job_id}: Slurm says that something happened to a job (its side is deploy/slurm).

A push is a hint and no more: it carries a job's id, and what became of the job is then asked of Slurm.
So one that is lost, late, doubled or forged harms nothing, and the token only keeps strangers from
making work. The answer never waits for Slurm: slurmctld holds the job while its script runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from hmac import compare_digest
from typing import Annotated

import structlog
from fastapi import APIRouter, Path, Request, Response

from extender.wire import reply
from slurm_client.errors import NeedsOperator
from slurm_client.tokens import TokenSource

log = structlog.get_logger()

_LOG_EVERY_S = 30.0

# Slurm's ids are 32 bits wide.
JobId = Annotated[int, Path(ge=1, lt=1 << 32)]


class Bearer:
    """Knows the token. A refusal is logged, but strangers cannot fill the log."""

    def __init__(self, tokens: TokenSource, clock: Callable[[], float] = time.monotonic) -> None:
        self._tokens = tokens
        self._clock = clock
        self._quiet_until = float("-inf")
        self._refused = 0

    def refusal(self, authorization: str | None) -> Response | None:
        """Returns the answer to who does not send the token; None to who does."""
        try:
            token = self._tokens.token()
        except NeedsOperator as error:
            self._log(str(error))
            return reply({"Error": "no token is set here: see the extender's log"}, 503)
        if authorization is None:
            wrong = "send the token: Authorization: Bearer TOKEN"
        elif not compare_digest(authorization.encode(), f"Bearer {token}".encode()):
            wrong = "this is not the token of SLURM_EXTENDER_HOOKS_TOKEN_FILE"
        else:
            return None
        self._log(wrong)
        refused = reply({"Error": wrong}, 401)
        refused.headers["WWW-Authenticate"] = "Bearer"
        return refused

    def _log(self, why: str) -> None:
        self._refused += 1
        if self._clock() >= self._quiet_until:
            log.warning("pushes refused", error=why, since_last_told=self._refused)
            self._quiet_until, self._refused = self._clock() + _LOG_EVERY_S, 0


def router(tokens: TokenSource, nudge: Callable[[int], None]) -> APIRouter:
    """Returns the route. `nudge` takes a job's id and returns at once; a replica that does not lead
    gives one that does nothing."""
    routes = APIRouter(prefix="/hooks/v1")
    bearer = Bearer(tokens)

    @routes.post("/jobs/{job_id}")
    async def job_changed(job_id: JobId, request: Request) -> Response:
        refused = bearer.refusal(request.headers.get("Authorization"))
        if refused is None:
            nudge(job_id)
        return refused or Response(status_code=202)

    return routes
