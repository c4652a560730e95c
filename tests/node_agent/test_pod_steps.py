"""Tests of steps in the jobs of Pods, on a real kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from node_agent.enforcement.native_jobs import Scope
from node_agent.enforcement.pod_steps import PodSteps
from node_agent.pods.cgroups import has_processes
from node_agent.pods.claims import Claim
from tests.eventually import eventually, eventually_not
from tests.node_agent.node import A, B

if TYPE_CHECKING:
    from tests.node_agent.node import Node

pytestmark = pytest.mark.real

SCOPE = "system.slice/n1_slurmstepd.scope"
CLAIM = Claim(A, "ml/a", job=33)
WORDS = "a user ran srun in job 33 of Pod ml/a"


class Steps(PodSteps):
    """Looks for steps in the jobs of a Node's Pods, at times that a test sets."""

    def __init__(self, node: Node, *, ends: bool = True) -> None:
        self.now = 0.0
        self._root = node.tree.root
        super().__init__(ends=ends, clock=lambda: self.now)

    def seen(self, *claims: Claim) -> str:
        return self.look([Scope(self._root / SCOPE)], claims or [CLAIM])


def make_step(node: Node, step: str, job: str = "job_33") -> str:
    """Makes the cgroups of a step. Returns the cgroup of a user's process."""
    place = f"{SCOPE}/{job}/{step}"
    node.tree.make(f"{place}/user/task_0", f"{place}/slurm")
    return f"{place}/user/task_0"


@pytest.mark.parametrize("claim", [CLAIM, Claim(A, "ml/a", job=33, adopted=True)])
@pytest.mark.parametrize("name", ["step_0", "step_interactive", "step_batches"])
def test_agent_ends_a_step_but_not_slurmstepd_or_the_batch_step(
    node: Node, name: str, claim: Claim
) -> None:
    steps, root = Steps(node), node.tree.root
    own, stepd = make_step(node, "step_batch"), f"{SCOPE}/job_33/{name}/slurm"
    with node.process(own), node.process(make_step(node, name)), node.process(stepd):
        assert steps.seen(claim) == f"{WORDS}: the node agent ends such steps"
        eventually_not(lambda: has_processes(root / SCOPE / "job_33" / name / "user"), "ended")
        assert has_processes(root / own)
        assert has_processes(root / stepd)


def test_step_is_only_reported_by_the_setting(node: Node) -> None:
    steps, step = Steps(node, ends=False), make_step(node, "step_0")
    with node.process(step):
        assert [steps.seen(), steps.seen(), steps.found] == [WORDS, WORDS, 1]
        assert has_processes(node.tree.root / step)


def test_message_about_a_step_stays_for_five_minutes(node: Node) -> None:
    steps, step = Steps(node, ends=False), make_step(node, "step_0")
    with node.process(step):
        steps.seen()
    eventually_not(lambda: has_processes(node.tree.root / step), "ended")
    found = list[str]()
    for steps.now in (299.0, 300.0):
        found.append(steps.seen())
    assert (found, steps.found) == ([WORDS, ""], 1)


def test_each_step_counts_once(node: Node) -> None:
    steps = Steps(node, ends=False)
    with node.process(make_step(node, "step_0")):
        steps.seen()
        with node.process(make_step(node, "step_1")):
            assert steps.seen() == WORDS
    assert steps.found == 2


def test_step_with_slurmstepd_alone_ends_later(node: Node) -> None:
    """The step's cgroup has only slurmstepd, which starts the step's processes a moment later."""
    steps, place = Steps(node), f"{SCOPE}/job_33/step_0"
    node.tree.make(f"{place}/slurm")
    with node.process(f"{place}/slurm"):
        steps.seen()
        with node.process(step := make_step(node, "step_0")):
            steps.seen()
            eventually_not(lambda: has_processes(node.tree.root / step), "ended")


@pytest.mark.parametrize("name", ["step_batch", "step_extern", "task_0"])
def test_own_step_of_slurm_is_left_alone(node: Node, name: str) -> None:
    steps, step = Steps(node), make_step(node, name)
    with node.process(step):
        assert [steps.seen(), steps.found] == ["", 0]
        eventually(lambda: has_processes(node.tree.root / step))


@pytest.mark.parametrize("job", ["job_34", "job_330", "job_0", "sEHSM7YS0FD500"])
def test_step_of_a_native_job_is_left_alone(node: Node, job: str) -> None:
    steps, step = Steps(node), make_step(node, "step_0", job)
    with node.process(step):
        found = steps.seen(CLAIM, Claim(B, "ml/b"), Claim(B, "ml/c", job=0, problem="unknown"))
        assert [found, steps.found] == ["", 0]
        assert has_processes(node.tree.root / step)


def test_cgroup_of_an_ended_step_is_no_step(node: Node) -> None:
    make_step(node, "step_0")
    assert Steps(node).seen() == ""
