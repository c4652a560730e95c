"""Tests of the routes for slurm-extender-hook and slurm-extender-gate."""

from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from structlog.testing import capture_logs

from extender.app import Extender
from extender.hooks.route import Bearer, router
from extender.leader.replica import Replica
from extender.node_sync.prolog_gate import Gate, NotLeading, NotOurs
from extender.policy.current import CurrentPolicy
from extender.routing import application
from extender.settings import Settings
from kubernetes_client.errors import KubernetesError
from kubernetes_client.in_memory import InMemoryKubernetes
from slurm_client.errors import Unreachable
from slurm_client.protocol import Slurm
from slurm_client.tokens import StaticToken, TokenFile
from tests.verbs.callers import FakeSlurm, Listeners

JOB = 40_000_000


class Shut:
    """A gate with a fixed answer."""

    def __init__(self) -> None:
        self.answer: tuple[str, ...] | Exception = ()
        self.placeholders: set[int] = set()
        self.asked: list[tuple[str, float, int | None]] = []
        self.agent_away: bool | None = None
        self.asked_of: list[tuple[str, int]] = []

    async def is_placeholder(self, node: str, job_id: int) -> bool:
        self.asked_of.append((node, job_id))
        return job_id in self.placeholders

    async def wait(
        self, node: str, seconds: float, job_id: int | None, *, agent_away: bool
    ) -> tuple[str, ...]:
        self.asked.append((node, seconds, job_id))
        self.agent_away = agent_away
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Pushed:
    """The routes, with the received jobs and the counted answers."""

    def __init__(self, token_file: Path) -> None:
        self._token_file = token_file
        self.jobs: list[int] = []
        self.gate = Shut()
        self.answers: list[str] = []
        routes = router(
            TokenFile(token_file), self.jobs.append, cast(Gate, self.gate), self.answers.append
        )
        transport = httpx.ASGITransport(application(routes), raise_app_exceptions=False)
        self._client = httpx.AsyncClient(transport=transport, base_url="http://extender")

    def rotate(self, token: str | None) -> None:
        """Writes another token; None deletes the file."""
        self._token_file.unlink()
        if token is not None:
            self._token_file.write_text(token)

    async def is_clear(self, node: str = "node-1?wait=5", token: str = "secret") -> httpx.Response:
        """Sends the request of slurm-extender-gate. The node's name may have a query."""
        name, _, query = node.partition("?")
        path = f"/hooks/v1/nodes/{name}/clear?{query}"
        return await self._client.get(path, headers={"Authorization": f"Bearer {token}"})

    async def push(self, job: Any = JOB, authorization: str | None = "Bearer secret") -> httpx.Response:
        headers = {} if authorization is None else {b"Authorization": authorization.encode()}
        return await self._client.post(f"/hooks/v1/jobs/{job}", headers=headers)


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("secret\n")
    return path


@pytest.fixture
def pushed(token_file: Path) -> Pushed:
    return Pushed(token_file)


async def test_a_push_is_passed_on_and_has_an_empty_answer(pushed: Pushed) -> None:
    answer = await pushed.push()
    assert (answer.status_code, answer.content) == (202, b"")
    assert pushed.jobs == [JOB]


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer ", "Bearer wrong", "secret", "Basic secret", "Bearer é"],
)
async def test_push_without_the_token_is_rejected(pushed: Pushed, authorization: str | None) -> None:
    answer = await pushed.push(authorization=authorization)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert "token" in answer.json()["Error"]
    assert pushed.jobs == []


async def test_a_new_token_counts_at_once(pushed: Pushed) -> None:
    await pushed.push()
    pushed.rotate("another")
    assert (await pushed.push()).status_code == 401
    assert (await pushed.push(authorization="Bearer another")).status_code == 202


@pytest.mark.parametrize("text", [None, "", "\n"])
async def test_missing_token_rejects_every_push(
    pushed: Pushed, token_file: Path, text: str | None
) -> None:
    pushed.rotate(text)
    with capture_logs() as logs:
        answer = await pushed.push(authorization="Bearer ")
    assert answer.status_code == 503
    assert str(token_file) in logs[0]["error"]  # in the log, but not in the answer
    assert str(token_file) not in answer.text
    assert pushed.jobs == []


NO_ID = [(job, 400, "job_id") for job in ("x", "0", "-1", "4294967296", "1.5")]


@pytest.mark.parametrize(("job", "status", "words"), [*NO_ID, (str(JOB), 202, "")])
async def test_replica_without_a_ledger_drops_pushes_about_any_job_id(
    token_file: Path, job: str, status: int, words: str
) -> None:
    hooks = Listeners(hooks_token_file=token_file).hooks
    sent = await hooks.post(f"/hooks/v1/jobs/{job}", headers={"Authorization": "Bearer secret"})
    assert sent.status_code == status
    assert words in sent.text


def test_without_a_token_file_there_is_no_listener() -> None:
    settings = Settings(slurm_token_file=Path("token"))
    kubernetes, slurm = InMemoryKubernetes(), cast(Slurm, FakeSlurm())
    extender = Extender(Replica(settings, kubernetes, slurm, CurrentPolicy(None)))
    assert settings.hooks_port not in {server.config.port for server in extender.servers()}


def test_strangers_cannot_fill_the_log() -> None:
    now = [0.0]
    bearer = Bearer(StaticToken("secret"), lambda: now[0])
    with capture_logs() as logs:
        for _ in range(50):
            bearer.unauthorized("Bearer guess")
        now[0] = 31.0
        bearer.unauthorized("Bearer guess")
    assert [entry["since_last_told"] for entry in logs] == [1, 50]


# The gate


async def test_clear_node_gets_an_empty_answer_with_status_204(pushed: Pushed) -> None:
    answer = await pushed.is_clear()
    assert (answer.status_code, answer.content) == (204, b"")
    assert "Slurm-Extender-Job" not in answer.headers
    assert pushed.gate.asked == [("node-1", 5.0, None)]


@pytest.mark.parametrize(("query", "agent_away"), [("agent=away", True), ("wait=5", False)])
async def test_query_reports_an_absent_node_agent_to_the_gate(
    pushed: Pushed, query: str, agent_away: bool
) -> None:
    assert (await pushed.is_clear(f"node-1?{query}")).status_code == 204
    assert pushed.gate.agent_away is agent_away


async def test_placeholder_of_this_cluster_waits_for_no_pods(pushed: Pushed) -> None:
    pushed.gate.placeholders, pushed.gate.answer = {JOB}, ("default/a",)
    answer = await pushed.is_clear(f"node-1?wait=5&job={JOB}")
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["Slurm-Extender-Job"] == "placeholder"
    assert (pushed.gate.asked_of, pushed.gate.asked) == ([("node-1", JOB)], [])


async def test_answers_are_counted_by_kind(pushed: Pushed) -> None:
    for answer in ((), ("default/a",), NotOurs(), NotLeading(), Unreachable("slurmctld is down")):
        pushed.gate.answer = answer
        await pushed.is_clear()
    pushed.gate.placeholders = {JOB}
    await pushed.is_clear(f"node-1?job={JOB}")
    await pushed.is_clear(token="guess")
    assert pushed.answers == ["clear", "pods", "not-ours", "not-leading", "failed", "placeholder"]


@pytest.mark.parametrize(
    ("known", "job", "status", "words"),
    [
        (("default/a", "ml/b"), "", 409, '{"Pods":["default/a","ml/b"]}'),
        (("default/a",), f"&job={JOB}", 409, "default/a"),
        (NotOurs(), "", 421, "no Node of this cluster"),
        (NotLeading(), "", 503, ""),
        (Unreachable("slurmctld is down"), "", 503, ""),
        (KubernetesError(500, "etcd is down"), "", 503, ""),
    ],
)
async def test_gate_answers_with_a_status(
    pushed: Pushed, known: tuple[str, ...] | Exception, job: str, status: int, words: str
) -> None:
    pushed.gate.answer = known
    answer = await pushed.is_clear(f"node-1?wait=5{job}")
    assert pushed.gate.asked == [("node-1", 5.0, JOB if job else None)]
    assert answer.status_code == status
    assert words in answer.text


@pytest.mark.parametrize("query", ["wait=-1", "wait=31", "wait=nan", "wait=x", "job=0", "job=x"])
async def test_invalid_wait_time_or_job_id_is_rejected(pushed: Pushed, query: str) -> None:
    assert (await pushed.is_clear(f"node-1?{query}")).status_code == 400


async def test_gate_requires_the_token(pushed: Pushed) -> None:
    assert (await pushed.is_clear(token="wrong")).status_code == 401
    assert pushed.gate.asked == []


async def test_replica_that_does_not_lead_answers_with_status_503(token_file: Path) -> None:
    hooks = Listeners(hooks_token_file=token_file).hooks
    asked = await hooks.get("/hooks/v1/nodes/n1/clear", headers={"Authorization": "Bearer secret"})
    assert asked.status_code == 503
    assert "leads" in asked.json()["Error"]
