"""Tests of the jobs of admitted Pods. Slurm accepts each job with the requested values, or refuses the
job for a cause that only Slurm can know.

Each Pod takes the way of a real Pod: the review of /mutate, the job from the Pod, slurmrestd, and a read
of the job. The test reads back every requested field of an accepted job. 26.05 answers HTTP 200 to an
unknown field and ignores the field. Both releases cut, fold or wrap some values without an error.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from deploy.local.cluster import Cluster
from extender.admission.mutate import review
from extender.admission.review import PodRequest
from extender.pod_request.annotations import JOB_ANNOTATIONS
from extender.pod_request.pod import parse_pod
from extender.policy.rules import OPEN
from slurm_client import hostlist
from slurm_client.errors import InvalidRequest
from slurm_client.model import JobSpec
from slurm_client.rest.client import SlurmRest
from slurm_client.rest.http import Request
from slurm_client.rest.responses import number
from tests.builders import PREFIX, TRANSLATION, container, pod_manifest
from tests.slurm_client.asks import ACCOUNTS, PARTITIONS, QOS, RESERVATION, RESERVED_FOR, Ask, asks
from tests.slurm_client.bench import CPUS, GPUS, MEMORY_MB, NODES, RealBench
from tests.slurm_client.conftest import RELEASES

EXAMPLES = 1200

ONLY_SLURM_KNOWS: Mapping[int, tuple[str, ...]] = {
    2000: ("partition",),  # no such partition
    2014: (  # no node fits
        *("cpus", "memory_mb", "gres", "shared"),
        *("constraints", "prefer", "excluded_nodes", "required_nodes", "partition"),
    ),
    2018: ("required_nodes", "excluded_nodes"),  # no such node, or required and excluded at once
    2029: ("constraints",),  # no such feature, or no such expression
    2045: ("account", "user_id", "group_id"),  # no such account, or not for this user
    2052: ("reservation",),  # not for this user
    2053: ("reservation",),  # no such reservation
    2066: ("qos",),  # no such QOS, or not for this account
    2133: ("prefer",),  # as for 2029
}
"""Slurm's refusals of admitted jobs: number -> the fields of a JobSpec that can be the cause."""
# scontrol's OverSubscribe and (26.05) Exclusive -> JobSpec's value of `shared`
SHARING: Mapping[tuple[str, str | None], str] = {
    ("NO", None): "none",
    ("NO", "NODE"): "none",
    ("YES", None): "oversubscribe",
    ("YES", "NO"): "oversubscribe",
    **{(word.upper(), None): word for word in ("user", "mcs", "topo")},
    **{("NO", word.upper()): word for word in ("user", "mcs", "topo")},
}
ABSENT: dict[str, Any] = {one.name: one.default for one in fields(JobSpec)} | {
    "cpus": 1,
    "memory_mb": 100,
}


def admitted(ask: Ask) -> JobSpec | None:
    """Returns the job from a Pod as the client sends the job. Returns None if the webhook rejects the
    Pod with a reason."""
    annotations = {PREFIX + name: value for name, value in ask.annotations.items()}
    pod = pod_manifest(annotations=annotations, containers=[container(ask.requests)])
    sent = {"uid": "1", "kind": {"kind": "Pod"}, "namespace": "default", "object": pod}
    response = review(PodRequest.model_validate(sent), TRANSLATION, OPEN)["response"]
    if not response["allowed"]:
        about = PREFIX + ask.about if ask.about else "request"
        assert about in response["status"]["message"]
        return None
    return replace(parse_pod(pod, TRANSLATION).request.job, admin_comment="key")


@dataclass
class Slurm:
    """A real Slurm with drained nodes, so no job starts."""

    bench: RealBench
    release: str
    loop: asyncio.Runner
    took: Counter[str] = field(default_factory=Counter)
    """Number of accepted jobs, by field of a JobSpec."""
    refused: Counter[int] = field(default_factory=Counter)

    def try_(self, spec: JobSpec) -> None:
        self.loop.run(self._try(spec))

    async def _try(self, spec: JobSpec) -> None:
        refusal = await self._taken(spec)
        if refusal is None:
            self.took.update(one.name for one in fields(spec) if getattr(spec, one.name) != one.default)
            return
        assert refusal in ONLY_SLURM_KNOWS
        assert not known(spec, refusal), "Slurm refuses what it has"
        self.refused[refusal] += 1
        without = {name: ABSENT[name] for name in ONLY_SLURM_KNOWS[refusal]}
        assert await self._taken(replace(spec, **without)) != refusal, "it was about something else"

    async def _taken(self, spec: JobSpec) -> int | None:
        """Returns the number of Slurm's refusal; None if Slurm accepts the job with the requested
        values."""
        try:
            job_id = await self.bench.slurm.submit(spec, next(self.bench.ids))
        except InvalidRequest as refusal:
            return refusal.number or 0
        try:
            asked, read = expected(spec), await self._read(job_id, spec)
        finally:
            await self.bench.slurm.cancel(job_id)
        assert {name: read.get(name) for name in asked} == asked
        return None

    async def _read(self, job_id: int, spec: JobSpec) -> Mapping[str, Any]:
        assert isinstance(self.bench.slurm, SlurmRest)
        reply = await self.bench.slurm._send(Request("GET", f"job/{job_id}"))
        (job,) = reply["jobs"]
        read = {name: _plain(value) for name, value in job.items()}
        for name in ("required_nodes", "excluded_nodes"):
            read[name] = set(hostlist.expand(read[name]))
        if spec.shared is not None:
            read["shared"] = self._sharing(job_id)
        return read

    def _sharing(self, job_id: int) -> str | None:
        """Returns the sharing that scontrol shows. slurmrestd 26.05 reports [] for every
        EXTERNAL_JOB."""
        shown = self.bench.cluster.run_slurm("scontrol", "--oneliner", "show", "job", str(job_id)).stdout
        words = dict(word.split("=", 1) for word in reversed(shown.split()) if "=" in word)
        return SHARING[words["OverSubscribe"], words.get("Exclusive")]


def _plain(value: Any) -> Any:
    return number(value) if isinstance(value, dict) and "number" in value else value


def expected(spec: JobSpec) -> dict[str, Any]:
    """Returns slurmrestd's report of an accepted job with the requested values."""
    user = spec.user_id or 0
    asked: dict[str, Any] = {
        "name": spec.name,
        "tasks": 1,
        "cpus_per_task": spec.cpus,
        "memory_per_node": spec.memory_mb,
        "tres_per_node": ",".join(f"gres/{name}:{count}" for name, count in spec.gres),
        "partition": spec.partition or "main",
        "account": (spec.account or ACCOUNTS[user][0]).lower(),  # Slurm writes accounts in lower case
        "resv_name": spec.reservation or "",
        "comment": spec.comment or "",
        "features": (spec.constraints or "").replace(",", "&"),  # sbatch(1): a comma means "and"
        "prefer": (spec.prefer or "").replace(",", "&"),
        "required_nodes": set(hostlist.names(spec.required_nodes)),
        "excluded_nodes": set(hostlist.names(spec.excluded_nodes)),
        "user_id": user,
        "group_id": user if spec.group_id is None else spec.group_id,
        "admin_comment": spec.admin_comment,
        "requeue": False,
    }
    given = {
        "qos": spec.qos,
        "current_working_directory": spec.current_working_directory,
        "priority": spec.priority,
        "time_limit": spec.time_limit_minutes,
        "shared": None if spec.shared is None else str(spec.shared),
    }
    return asked | {name: value for name, value in given.items() if value is not None}


def known(spec: JobSpec, number: int) -> bool:
    """Returns True if Slurm knows all possible causes of a refusal with this number."""
    user = spec.user_id or 0
    match number:
        case 2000:
            return set((spec.partition or "main").split(",")) <= PARTITIONS
        case 2014:
            fits = spec.cpus <= CPUS and spec.memory_mb <= MEMORY_MB
            anywhere = not (spec.constraints or spec.prefer or spec.required_nodes)
            some = set(hostlist.names(spec.excluded_nodes)) != set(NODES)
            return fits and anywhere and some and all(count <= GPUS for _, count in spec.gres)
        case 2018:
            required, excluded = map(
                set, (hostlist.names(spec.required_nodes), hostlist.names(spec.excluded_nodes))
            )
            return required | excluded <= set(NODES) and not required & excluded
        case 2045:
            own = ACCOUNTS.get(user, ())
            return bool(own) and (spec.account or own[0]).lower() in own
        case 2052 | 2053:
            return spec.reservation in (None, RESERVATION) and user in RESERVED_FOR
        case 2066:
            return {one.lower() for one in (spec.qos or "normal").split(",")} <= {*QOS.get(user, ())}
    return False


@pytest.fixture(scope="session", params=RELEASES)
def slurm(request: pytest.FixtureRequest, cluster_of: Callable[[str, bool], Cluster]) -> Iterator[Slurm]:
    cluster = cluster_of(request.param, True)
    with asyncio.Runner() as loop:
        client = SlurmRest(cluster.slurmrestd_url, cluster.token_file)
        loop.run(client.connect())
        bench = RealBench(client, cluster)
        with bench.reserved(RESERVATION, NODES, ("root", "alice")), drained(bench, loop):
            yield Slurm(bench, request.param, loop)
        loop.run(bench.clear())
        loop.run(client.aclose())


@contextmanager
def drained(bench: RealBench, loop: asyncio.Runner) -> Iterator[None]:
    for name in NODES:
        loop.run(bench.drain(name))
    yield
    for name in NODES:
        loop.run(bench.resume(name))


@pytest.mark.real
@pytest.mark.timeout(300)
def test_slurm_keeps_each_requested_field_of_an_admitted_pod(slurm: Slurm) -> None:
    @settings(
        max_examples=EXAMPLES, derandomize=True, database=None, suppress_health_check=[*HealthCheck]
    )
    @given(asks())
    def each(ask: Ask) -> None:
        spec = admitted(ask)
        if spec is not None:
            slurm.try_(spec)

    each()
    assert {row.field for row in JOB_ANNOTATIONS} <= set(slurm.took)
    assert slurm.took.total() > EXAMPLES / 2
    assert set(slurm.refused) >= {2000, 2018, 2029, 2045, 2053, 2066, 2133}
