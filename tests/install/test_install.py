"""Tests of the chart with its images: installation, `helm test`, upgrade under load, and uninstallation.

Each test continues from the state that the test before left.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from deploy.local.guest.nodes import GPU
from deploy.local.guest.oci import BOX
from deploy.local.spec import GUEST
from tests.end_to_end.actors import PREFIX, Actors
from tests.install.conftest import BEFORE, Images
from tests.install.figures import record, seconds_since
from tests.install.installation import Installation
from tests.install.releases import WITHIN_S

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.install, pytest.mark.timeout(1500)]
_PAUSE_S = 10.0
"""Pause between the Pods that the test creates during an upgrade. On the emulated processors, each
container takes seconds to start."""


def create(actors: Actors, name: str, *, gpus: int = 0) -> None:
    """Creates a Pod in the form that the Pod's author would choose: with an annotation, and without the
    name of a scheduler."""
    requests = {"cpu": "1", "memory": "64Mi"}
    limits = {GPU: str(gpus)} if gpus else {}
    container = {
        "name": "c",
        "image": BOX,
        "imagePullPolicy": "Never",
        "command": ["sleep", "2147483647"],
        "resources": {"requests": requests | limits, "limits": limits},
    }
    actors.create(
        name,
        scheduler="default-scheduler",
        annotations={"comment": "install"},
        containers=[container],
        terminationGracePeriodSeconds=2,
    )


def is_running(actors: Actors, name: str) -> Callable[[], bool]:
    def see() -> bool:
        seen = actors.see(name)
        return seen is not None and seen["status"].get("phase") == "Running"

    return see


def test_an_annotated_pod_is_bound_and_runs(installation: Installation, actors: Actors) -> None:
    began = time.monotonic()
    installation.install(f"--set=extender.image.tag={BEFORE}", f"--set=nodeAgent.image.tag={BEFORE}")
    installation.until(lambda: "idle" in installation.slurm_node(), "the slurmd Pod's node is idle")
    create(actors, "first", gpus=1)
    installation.until(lambda: actors.node_of("first") == GUEST, "the first Pod is bound")
    record("install_to_first_bound_s", seconds_since(began))
    installation.until(is_running(actors, "first"), "the first Pod runs")
    assert actors.job_of("first") is not None
    assert PREFIX + "comment" in actors.pods()[actors.full("first")]["metadata"]["annotations"]


def test_programs_run_as_the_users_of_their_images(installation: Installation, images: Images) -> None:
    uid = "import os; print(os.getuid())"
    assert installation.inside("extender", uid).strip() == "65532"
    assert installation.inside("node-agent", uid).strip() == "0"
    for component in ("extender", "node-agent"):
        for pod in installation.pods(component):
            states = pod["status"]["containerStatuses"]
            assert all(state["restartCount"] == 0 for state in states), states
            used = {state["image"] for state in states}
            assert used <= {built.reference for built in (*images.before, images.scheduler)}


def test_check_of_the_chart_passes(installation: Installation) -> None:
    assert "Succeeded" in installation.test()


def test_kube_scheduler_loses_its_lease_if_its_extender_hangs(
    installation: Installation,
) -> None:
    """The kubelet's liveness probe of kube-scheduler is a call to the extender, at the Pod's address."""
    lease = "slurm-extender-kube-scheduler"
    before = installation.holder(lease)
    assert before
    assert installation.state_of("kube-scheduler")["started"]
    installation.signal("STOP")
    try:
        installation.until(
            lambda: installation.state_of("kube-scheduler")["restartCount"] == 1,
            "kube-scheduler is ended",
        )
        last = installation.state_of("kube-scheduler")["lastState"]["terminated"]
        assert last["exitCode"] == 0  # SIGTERM has ended kube-scheduler, which released the Lease
    finally:
        installation.signal("CONT")
    installation.until(
        lambda: all(installation.state_of(name)["ready"] for name in ("extender", "kube-scheduler")),
        "both are ready again",
    )
    installation.until(lambda: installation.holder(lease) not in ("", before), "another holds its Lease")


@contextmanager
def pods_all_the_while(actors: Actors) -> Iterator[list[str]]:
    """Creates a Pod every ten seconds, and deletes each Pod after its binding, until the block ends.
    Yields the list of the names of bound Pods. After the block, raises the first failure."""
    over, names, failures = threading.Event(), list[str](), list[Exception]()

    def author() -> None:
        try:
            while not over.is_set():
                name = f"meanwhile-{len(names)}"
                create(actors, name)
                actors.bound(name, WITHIN_S)
                names.append(name)
                actors.delete(name)
                over.wait(_PAUSE_S)
        except Exception as failure:  # noqa: BLE001 -- it is raised below
            failures.append(failure)

    thread = threading.Thread(target=author)
    thread.start()
    try:
        yield names
    finally:
        over.set()
        thread.join()
    if failures:
        raise failures[0]


def test_pods_are_placed_during_an_upgrade(
    installation: Installation, actors: Actors, images: Images
) -> None:
    create(actors, "stays")
    installation.until(is_running(actors, "stays"), "a Pod runs before the upgrade")
    uid = actors.pods()[actors.full("stays")]["metadata"]["uid"]
    with pods_all_the_while(actors) as names:
        installation.upgrade()
        done = len(names)
        installation.until(lambda: len(names) > done, "a Pod is bound after the upgrade")
    record("upgrade_pods_bound", len(names))
    now = {built.reference for built in (*images.now, images.scheduler)}
    for component in ("extender", "node-agent"):
        for pod in installation.pods(component):
            assert {state["image"] for state in pod["status"]["containerStatuses"]} <= now
    stays = actors.pods()[actors.full("stays")]
    assert (stays["metadata"]["uid"], stays["status"]["phase"]) == (uid, "Running")
    assert actors.job_of("stays") is not None


def test_nothing_is_left_after_an_uninstall(installation: Installation, actors: Actors) -> None:
    for name in ("first", "stays"):
        actors.delete(name)
    installation.until(lambda: not actors.pods(), "no Pods are left")
    installation.until(lambda: not actors.jobs(), "no jobs are left")
    installation.upgrade(replicas=0)
    installation.until(lambda: not installation.slurmd_pods(), "no slurmd Pod is left")
    installation.uninstall()
    try:
        installation.until(lambda: not installation.left(), "nothing is left")
    finally:
        record("left_after_uninstall", installation.left())
