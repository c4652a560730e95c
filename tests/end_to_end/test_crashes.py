"""kill -9 of the extender at each effect of the flow: one placeholder a Pod, and every Pod bound."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator

import httpx
import pytest

from tests.end_to_end.actors import Actors, name_of
from tests.eventually import eventually

pytestmark = pytest.mark.real

ALIKE = pytest.mark.one_release(
    "The crash interrupts a request to Kubernetes; each request to Slurm is interrupted on each release"
)
CALLS = (
    "SlurmRest.allocate",
    "SlurmRest.submit",
    "SlurmRest.job",
    "SlurmRest.cancel",
    pytest.param("KubernetesRest.patch_pod_status", marks=ALIKE),
    pytest.param("KubernetesRest.patch_pod", marks=ALIKE),
    pytest.param("KubernetesRest.bind_pod", marks=ALIKE),
    pytest.param("KubernetesRest.create_event", marks=ALIKE),
    pytest.param("KubernetesRest.delete_pod", marks=ALIKE),
)
CALLS_FOR_USERS = (
    "SlurmRest.allocate_as_owner",
    "SlurmRest.job",
    "SlurmRest.cancel",
    pytest.param("KubernetesRest.patch_pod", marks=ALIKE),
)
"""What is called while a job has an id of Slurm's choice, and nothing else tells whose it is."""
ALICE = "rules:\n- name: all\n  namespaces: [default]\n  default: {user: 2001}\n"


def start_doomed(actors: Actors, point: str) -> None:
    argv = [sys.executable, "-m", "tests.end_to_end.crashing_extender"]
    actors.cluster.start("extender", argv=argv, env={"SLURM_EXTENDER_CRASH_AT": point})


def restart_if_dead(actors: Actors) -> bool:
    """Starts a healthy extender in the place of one that was killed."""
    if actors.cluster.is_running("extender"):
        return False
    assert actors.cluster.wait_exit("extender") == -signal.SIGKILL
    actors.cluster.start("extender")
    return True


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_crash_while_an_allocation_is_given_back_leaves_one_placeholder(
    quiet: Actors, side: str
) -> None:
    """kube-scheduler sleeps past the deadline: the Pod's next attempt is written, then the job ended."""
    actors, cluster = quiet, quiet.cluster
    argv = [sys.executable, "-m", "tests.end_to_end.crashing_extender"]
    settings = {
        "SLURM_EXTENDER_CRASH_AT": f"Dispatcher._write_attempt:{side}",
        "SLURM_EXTENDER_UNBOUND_DEADLINE_S": "1",
    }
    cluster.start("extender", argv=argv, env=settings)
    cluster.pause("kube-scheduler")
    try:
        actors.create("p")
        assert cluster.wait_exit("extender", 20.0) == -signal.SIGKILL
        cluster.start("extender")
    finally:
        cluster.resume("kube-scheduler")
    node = actors.bound("p", within=60)
    job = actors.job_of("p")
    assert job is not None
    assert (job.state, job.node) == ("RUNNING", node)
    eventually(lambda: len(actors.squeue()) == 1, "one job")


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.one_release("The update of a waiting job is tested on each release in tests/slurm_client")
def test_a_crash_while_slurm_is_told_of_a_cordon_loses_nothing(quiet: Actors, side: str) -> None:
    actors, cluster = quiet, quiet.cluster
    start_doomed(actors, f"Dispatcher._exclude_nodes:{side}")
    names = [f"big-{number}" for number in range(4)]
    for name in names:
        actors.create(name, cpu="8")
        actors.bound(name)
    actors.create("next", cpu="8")
    actors.queued("next")
    cordoned = str(actors.node_of(names[0]))
    cluster.kubectl("cordon", cordoned)
    try:
        assert cluster.wait_exit("extender", 20.0) == -signal.SIGKILL
        cluster.start("extender")
        eventually(lambda: actors.scontrol("next")["ExcNodeList"] == cordoned, "Slurm is told")
        actors.delete(names[1])
        assert actors.bound("next") != cordoned
    finally:
        cluster.kubectl("uncordon", cordoned)


def created(actors: Actors, name: str) -> bool:
    """Creates a Pod; while the extender is dead admission refuses it, and its author tries again."""
    try:
        actors.create(name, cpu="8")
    except httpx.HTTPStatusError as error:
        if "slurm-extender.io" not in error.response.text:
            raise
        return False
    return True


def jobs_ever_granted(actors: Actors, name: str) -> int:
    """How many jobs of this Pod ran at all, the ended ones that Slurm still remembers included."""
    shown = actors.cluster.run_slurm("squeue", "-h", "-t", "all", "-o", "%j|%N").stdout
    granted = (line.split("|") for line in shown.splitlines())
    return sum(1 for job, nodes in granted if name_of(job) == name and nodes)


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("call", CALLS)
def test_a_crash_makes_no_second_placeholder_and_loses_no_pod(
    quiet: Actors, call: str, side: str
) -> None:
    nothing_is_lost(quiet, call, side)


@pytest.fixture
def of_alice(quiet: Actors) -> Iterator[Actors]:
    """Every Pod is alice's: Slurm chooses the ids of the jobs that are asked for at once."""
    file = quiet.cluster.policy_file
    before = file.read_text()
    file.write_text(ALICE)
    yield quiet
    if quiet.cluster.is_running("extender"):
        quiet.cluster.stop("extender")  # one that runs on would read the file in the next test's midst
    file.write_text(before)


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("call", CALLS_FOR_USERS)
def test_neither_does_one_while_a_users_job_is_asked_for(of_alice: Actors, call: str, side: str) -> None:
    nothing_is_lost(of_alice, call, side)


def nothing_is_lost(actors: Actors, call: str, side: str) -> None:
    died = False
    start_doomed(actors, f"{call}:{side}")
    tag = f"{call.split('.')[1].replace('_', '-')}-{side}"
    names = [f"{tag}-{number}" for number in range(5)]

    def settled(*bound: str) -> bool:
        nonlocal died
        died = restart_if_dead(actors) or died
        actors.squeue()  # fails on two live jobs of one name
        return all(actors.node_of(name) for name in bound)

    def create(name: str) -> None:
        eventually(lambda: settled() and created(actors, name), f"{name} created", 40)

    for name in names[:4]:  # fill all nodes; the fifth has to wait in Slurm's queue
        create(name)
        eventually(lambda: settled(name), f"{name} bound", 40)  # noqa: B023 -- called at once
    create(names[4])
    eventually(lambda: settled() and actors.condition(names[4]), "the fifth is told why it waits", 40)
    actors.delete(names[0])  # the first gives its node back: the fifth takes it
    eventually(lambda: settled(names[4]), "the fifth bound", 40)
    actors.scancel(names[1])  # the second is evicted
    eventually(lambda: settled() and actors.see(names[1]) is None, "the second gone", 40)

    # An Event comes a second after what it tells of.
    eventually(lambda: settled() and died, f"a call of {call}: else this crash was not tested", 10)
    for name in names[2:]:
        job = actors.job_of(name)
        assert job is not None
        assert (job.state, job.node) == ("RUNNING", actors.node_of(name))
        assert jobs_ever_granted(actors, actors.job_name(name)) == 1
    eventually(
        lambda: set(actors.squeue()) == {actors.job_name(n) for n in names[2:]},
        "no job left over",
    )
