"""/hooks/v1: answers the calls of Slurm's scripts (deploy/slurm).

POST jobs/{job_id} is a push: a message that something happened to a job. GET nodes/{name}/clear is the
question of a node's gate (the Prolog script of the node): may the first process of a job start on the
node, or are Pods of ended jobs still on the node?

A push is only a hint, because the extender then asks Slurm for the state of the job. So a lost, late,
doubled or forged push does no harm. The token keeps strangers from causing requests to Slurm. The answer
to a push never waits for Slurm, because slurmctld holds the job while the script runs.
"""

import time
from collections.abc import Callable
from enum import StrEnum
from hmac import compare_digest
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from extender.node_sync.prolog_gate import Gate, NotLeading, NotOurs
from extender.routing import VerbRoute, reply
from kubernetes_client.errors import KubernetesError
from service.rate_limited_log import RateLimitedLog
from slurm_client.errors import NeedsOperator, SlurmError
from slurm_client.tokens import TokenSource

# Slurm's job ids are 32 bits wide.
JobId = Annotated[int, Path(ge=1, lt=1 << 32)]
NodeName = Annotated[str, Path(max_length=255)]
Seconds = Annotated[float, Query(ge=0, le=30)]
AskingJob = Annotated[int | None, Query(ge=1, lt=1 << 32)]
_PLACEHOLDER = {"Slurm-Extender-Job": "placeholder"}


class GateAnswer(StrEnum):
    """The kind of answer to a node's gate, as a label of metrics. The gate is the Prolog script of the
    node."""

    CLEAR = "clear"
    PLACEHOLDER = "placeholder"
    PODS = "pods"  # Pods are still there: the gate asks again, and fails the job after a time limit
    NOT_OURS = "not-ours"
    NOT_LEADING = "not-leading"  # the leader knows the answer; with two replicas, half of all answers
    FAILED = "failed"  # Slurm or kube-apiserver did not answer


class Bearer:
    """Compares the token of a request with the right token. Logs wrong tokens at a limited rate, so that
    strangers cannot fill the log."""

    def __init__(self, tokens: TokenSource, clock: Callable[[], float] = time.monotonic) -> None:
        self._tokens = tokens
        self._unauthorized = RateLimitedLog("pushes unauthorized", clock)

    def unauthorized(self, authorization: str | None) -> Response | None:
        """Returns the answer that rejects a request without the token; None if the request has the
        token."""
        try:
            token = self._tokens.token()
        except NeedsOperator as error:
            self._unauthorized.says(error=str(error))
            return reply({"Error": "no token is set here: see the extender's log"}, 503)
        if authorization is None:
            wrong = "send the token: Authorization: Bearer TOKEN"
        elif not compare_digest(authorization.encode(), f"Bearer {token}".encode()):
            wrong = "this is not the token of SLURM_EXTENDER_HOOKS_TOKEN_FILE"
        else:
            return None
        self._unauthorized.says(error=wrong)
        answer = reply({"Error": wrong}, 401)
        answer.headers["WWW-Authenticate"] = "Bearer"
        return answer


def router(
    tokens: TokenSource,
    poll_now: Callable[[int], None],
    gate: Gate,
    answered: Callable[[str], object] = lambda _: None,
) -> APIRouter:
    """Returns the routes. `poll_now` takes the id of a job and returns at once. If this replica does not
    hold the Lease, `poll_now` does nothing. `answered` takes the `GateAnswer` of each answer."""
    routes = APIRouter(prefix="/hooks/v1", route_class=VerbRoute)
    bearer = Bearer(tokens)

    @routes.post("/jobs/{job_id}")
    async def job_changed(job_id: JobId, request: Request) -> Response:
        unauthorized = bearer.unauthorized(request.headers.get("Authorization"))
        if unauthorized is None:
            poll_now(job_id)
        return unauthorized or Response(status_code=202)

    @routes.get("/nodes/{name}/clear")
    async def clear(
        name: NodeName,
        request: Request,
        wait: Seconds = 0.0,
        job: AskingJob = None,
        agent: str = "",
    ) -> Response:
        """Answers whether `job` may start on the node, by the HTTP status. 204: the job may start. If
        the reply has the header Slurm-Extender-Job: placeholder, the job belongs to this cluster, and no
        other cluster needs to answer. 409: after `wait` seconds, Pods are still on the node, and the
        body names the Pods. 421: no Node of this cluster stands for the node. 503: the caller must ask
        another replica. `agent` is "away" if the node's agent does not answer."""
        unauthorized = bearer.unauthorized(request.headers.get("Authorization"))
        if unauthorized is not None:
            return unauthorized
        word, answer = await _answer(gate, name, wait, job, agent_away=agent == "away")
        answered(word)
        return answer

    return routes


async def _answer(
    gate: Gate, node: str, seconds: float, job_id: int | None, *, agent_away: bool
) -> tuple[GateAnswer, Response]:
    try:
        if job_id is not None and await gate.is_placeholder(node, job_id):
            return GateAnswer.PLACEHOLDER, Response(status_code=204, headers=_PLACEHOLDER)
        there = await gate.wait(node, seconds, job_id, agent_away=agent_away)
    except NotOurs:
        return GateAnswer.NOT_OURS, reply({"Error": "no Node of this cluster stands for it"}, 421)
    except NotLeading:
        error = "another replica leads, or none does yet"
        return GateAnswer.NOT_LEADING, reply({"Error": error}, 503)
    except (SlurmError, KubernetesError) as error:
        return GateAnswer.FAILED, reply({"Error": str(error)}, 503)
    if there:
        return GateAnswer.PODS, reply({"Pods": there}, 409)
    return GateAnswer.CLEAR, Response(status_code=204)
