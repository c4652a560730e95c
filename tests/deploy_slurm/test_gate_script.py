"""Tests of deploy/slurm/slurm-extender-gate. The tests call this script as slurmd does before a job
starts. The job starts, waits or fails."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import datetime
from email.message import Message
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from deploy.local.layout import CHECKOUT
from extender.node_sync.drains import PREFIX
from slurm_client.model import HIGHEST_PRIORITY
from tests.deploy_slurm.listeners import Listener
from tests.node_sync.test_drain_decision import observed, slurm_node
from wellknown.job_key import ADOPTED_ATTEMPT, PlaceholderKey

SCRIPT = CHECKOUT / "deploy/slurm/slurm-extender-gate"
PLACEHOLDER = 40_000_000
TRIES_S = 0
"""Value of SLURM_EXTENDER_GATE_S in tests that set no other value. With 0, the gate asks the extender
only once."""
WAITING = (409,) * 10
"""Answers with which an extender makes the gate wait for more than two seconds."""
OWN = "204, for a placeholder of its own"
FORGED = "\n   Requeue=0 Restarts=0\n   SuspendTime=None forged"
"""Comment of a job that contains forged lines of `scontrol show job`."""


class Extender(Listener):
    """An extender with prepared answers. After all other answers, the extender repeats the last
    answer."""

    def __init__(self, *statuses: int | str) -> None:
        self.statuses = list(statuses)
        self.pause = 0.0
        """Pause of the extender before each answer, in seconds."""
        self.pods = ["default/p", "default/q"]
        self.asked: list[tuple[str, str | None]] = []
        super().__init__(self._answer)

    def _answer(self, path: str, headers: Message) -> tuple[int, str, dict[str, str]]:
        self.asked.append((path, headers["Authorization"]))
        time.sleep(self.pause)
        answer = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if answer == OWN:
            return 204, "", {"slurm-extender-job": "placeholder"}
        body = "" if answer == 204 else json.dumps({"Pods": self.pods}, separators=(",", ":"))
        return int(answer), body, {}


class Agent(Listener):
    """Plays the node agent, which listens on a Unix socket of the node."""

    def __init__(self, folder: Path, *answers: str) -> None:
        self.answers = list(answers)
        self.asked = 0
        super().__init__(self._answer, str(folder / "agent"))

    def _answer(self, path: str, _: Message) -> tuple[int, str, dict[str, str]]:
        self.asked += 1
        said = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return 200 if said and path == "/gate/v1/clear" else 500, f"{said}\n", {}


class Slurmd:
    """Runs the script with the few environment variables that slurmd sets. Other scripts replace squeue,
    scontrol and sinfo, and print prepared texts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._listeners: list[Listener] = []
        (folder / "token").write_text("secret\n")
        self.waits_for("")
        self.remembers("")
        self.signed("")
        self._command("sinfo", "exit 1")
        self.slurmctld_started(3600)
        self.shows(PLACEHOLDER)

    def remembers(self, text: str, status: int = 0, then: str | None = None) -> None:
        """Sets what squeue prints about the node's jobs. If `then` is given, the second and all later
        calls print `then`."""
        self._squeue(text, status, "7", status, then)

    def has_elsewhere(self, *jobs: int) -> None:
        """Lets squeue print other jobs on the node, but not the starting job."""
        self._squeue("", 0, "".join(f"{job}\\n" for job in jobs), 0)

    def knows_not(self) -> None:
        self._squeue("", 0, "slurm_load_jobs error: Invalid job id specified", 1)

    def _squeue(
        self, text: str, status: int, job: str, job_status: int, then: str | None = None
    ) -> None:
        """Sets what squeue prints about the node's jobs, and about the starting job."""
        says = f"printf '{job}' >&{2 if job_status else 1}; exit {job_status}"
        own = f"*--jobs=7\\ --nodelist=node-1*) {says}"
        key = f"*--jobs=*\\ --Format=admin_comment:16*) cat {self._folder}/key; exit"
        adopted = f"*--jobs=*\\ --Format=admin_comment:1000*) cat {self._folder}/waiting-key; exit"
        waits = f"*--states=PENDING*) cat {self._folder}/waits; exit {status}"
        cases = f'case "$*" in {own} ;; {adopted} ;; {key} ;; {waits} ;; esac'
        starts = f'echo "$SLURM_JOB_ID CONFIGURING $(cat {self._folder}/key)"' if job == "7" else ":"
        later = "" if then is None else f"[ -e {self._folder}/said ] && {{ printf '{then}'; exit; }}; "
        says = f"{cases}; {starts}; {later}printf '{text}'; : >{self._folder}/said"
        self._command("squeue", f"echo >>{self._folder}/asked; {says}; exit {status}")

    def signed(self, admin_comment: str) -> None:
        """Sets the AdminComment of the starting job."""
        (self._folder / "key").write_text(f"{admin_comment:.16}\n")

    def waits_for(
        self, nodes: str, job: int = PLACEHOLDER, priority: int = HIGHEST_PRIORITY, attempt: int = 1
    ) -> None:
        """Lets squeue print a pending job. The job can start only on the given nodes."""
        (self._folder / "waits").write_text(f"1 1 node-1\n{job} {priority} {nodes}\n")
        key = PlaceholderKey("kubernetes", "default", "p", "u", attempt)
        (self._folder / "waiting-key").write_text(f"{key} \n")

    def shows(self, job: int, suspended: str = "None", restarts: int = 0, comment: str = "") -> None:
        """Sets what scontrol prints about a job. By default, the job was never suspended or requeued."""
        requeue, suspend = f"Requeue=0 Restarts={restarts}", f"SuspendTime={suspended}"
        shown = f"JobId={job} JobName=p\n   {requeue} BatchFlag=0\n   {suspend} SecsPreSuspend=0\n"
        shown += f"   Comment={comment}\n"
        (self._folder / f"job-{job}").write_text(shown)

    def times_shown(self) -> int:
        """Returns how many times scontrol was called for jobs."""
        asked = self._folder / "asked-for-jobs"
        return len(asked.read_text().splitlines()) if asked.exists() else 0

    def slurmctld_hangs(self) -> None:
        self._command("squeue", "sleep 60")

    def is_busy(self) -> None:
        """Delays each run of squeue by 3.5 s."""
        squeue = self._folder / "squeue"
        squeue.write_text(squeue.read_text().replace("\n", "\nsleep 3.5\n", 1))

    def times_asked(self) -> int:
        """Returns how many times squeue has run."""
        asked = self._folder / "asked"
        return len(asked.read_text().splitlines()) if asked.exists() else 0

    def slurmctld_started(self, seconds_ago: int | None) -> None:
        """Sets slurmctld's start time in the output of scontrol. With None, scontrol prints no start
        time."""
        shows = "exit 1"
        if seconds_ago is not None:
            begin = datetime.fromtimestamp(time.time() - seconds_ago).isoformat(timespec="seconds")  # noqa: DTZ006 - local
            shows = f"echo 'AuthType  = auth/slurm'; echo 'BOOT_TIME               = {begin}'; exit"
        told = f'printf "%s\\n" "$@" >>{self._folder}/told'
        expands = "sed 's/node-.\\([0-9]*\\)-\\([0-9]*\\).$/node-\\1,node-\\2/' | tr , '\\n'"
        names = f'[ "$2" = hostnames ] && {{ echo $3 | {expands}; exit; }}'
        ping = f'[ "$1" = ping ] && {{ cat {self._folder}/ping; exit; }}'
        job = f"cat {self._folder}/job-$id || exit 1"
        each = f"echo >>{self._folder}/asked-for-jobs; while read -r _ _ id; do {job}; done; exit"
        jobs = f'[ "$*" = --local ] && {{ {each}; }}'
        self._command("scontrol", f'{names}; {ping}; {jobs}; [ "$1" = show ] && {{ {shows}; }}; {told}')

    def has_backup(self, *, leads: bool) -> None:
        """Makes scontrol print a second slurmctld, the backup."""
        self.backup_leads(leads)
        show = "echo 'AuthType  = auth/slurm'"
        named = "echo 'SlurmctldHost[0]        = one'; echo 'SlurmctldHost[1]        = two'"
        scontrol = self._folder / "scontrol"
        scontrol.write_text(scontrol.read_text().replace(f"{show};", f"{show}; {named};"))

    def backup_leads(self, leads: bool) -> None:
        """Sets which slurmctld leads. A test can call this function while the script runs."""
        pings = (
            f"Slurmctld(primary) at one is {'DOWN' if leads else 'UP'}\nSlurmctld(backup) at two is UP\n"
        )
        (self._folder / "new-ping").write_text(pings)
        (self._folder / "new-ping").rename(self._folder / "ping")

    def node_is(self, state: str) -> None:
        """Sets the node's state in the output of sinfo. Before the first call, sinfo fails."""
        self._command("sinfo", f"echo {state}")

    def ordered(self) -> list[str]:
        """Returns all arguments of the changes that the script has ordered by scontrol, in a single
        list."""
        told = self._folder / "told"
        return told.read_text().splitlines() if told.exists() else []

    def _command(self, name: str, script: str) -> None:
        (self._folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (self._folder / name).chmod(0o755)

    def extenders(self, *each: Extender | str) -> None:
        self._listeners += [one for one in each if isinstance(one, Extender)]
        urls = " ".join(one if isinstance(one, str) else one.url for one in each)
        (self._folder / "gate.conf").write_text(
            f'SLURM_EXTENDER_HOOKS_URLS="{urls}"\n'
            f"SLURM_EXTENDER_HOOKS_TOKEN_FILE={self._folder}/token\nSLURM_EXTENDER_GATE_S={TRIES_S}\n"
            f"SLURM_EXTENDER_AGENT={self._folder}/agent\n"
        )

    def agent(self, *answers: str) -> Agent:
        """Starts a node agent on the node."""
        assert shutil.which("curl"), "curl is needed: apt-get install curl"
        agent = Agent(self._folder, *answers)
        self._listeners.append(agent)
        return agent

    def patience(self, seconds: int) -> None:
        with (self._folder / "gate.conf").open("a") as configuration:
            configuration.write(f"SLURM_EXTENDER_GATE_S={seconds}\n")

    def run(
        self, *arguments: str, job: int = 7, script: Path = SCRIPT
    ) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{self._folder}:{os.environ['PATH']}",
            "SLURM_EXTENDER_HOOK_CONF": str(self._folder / "gate.conf"),
            "SLURM_JOB_ID": str(job),
            "SLURMD_NODENAME": "node-1",
        }
        argv = [str(script), *arguments]
        return subprocess.run(
            argv, env=environment, capture_output=True, text=True, timeout=30, check=False
        )

    def close(self) -> None:
        for each in self._listeners:
            each.close()


DOWN = "http://127.0.0.1:1"


@pytest.fixture
def slurmd(tmp_path: Path) -> Iterator[Slurmd]:
    made = Slurmd(tmp_path)
    yield made
    made.close()


@pytest.fixture
def late_slurmd(slurmd: Slurmd) -> Slurmd:
    """A slurmd whose job waits for the extender for more than two seconds. slurmctld has just started,
    so slurmctld may have forgotten the job."""
    slurmd.extenders(Extender(409, *WAITING, 204))
    slurmd.patience(20)
    slurmd.node_is("idle")
    slurmd.slurmctld_started(0)
    return slurmd


def test_a_clear_node_lets_the_job_through(slurmd: Slurmd) -> None:
    slurmd.extenders(leader := Extender(204))
    assert slurmd.run().returncode == 0
    assert leader.asked == [("/hooks/v1/nodes/node-1/clear?wait=5&job=7", "Bearer secret")]


@pytest.mark.parametrize("other", [DOWN, "http://no.such.host.invalid:8000", Extender(503)])
def test_gate_finds_the_leading_replica(slurmd: Slurmd, other: Extender | str) -> None:
    slurmd.extenders(other, leader := Extender(204))
    assert slurmd.run().returncode == 0
    assert leader.asked


def test_a_job_waits_until_the_pod_is_gone(slurmd: Slurmd) -> None:
    slurmd.extenders(leader := Extender(409, 204))
    slurmd.patience(20)
    assert slurmd.run().returncode == 0
    assert len(leader.asked) == 2


@pytest.mark.parametrize("told", [(), (77, 17), None])
def test_a_job_that_slurm_forgot_while_it_waited_does_not_start(
    late_slurmd: Slurmd, told: tuple[int, ...] | None
) -> None:
    late_slurmd.knows_not() if told is None else late_slurmd.has_elsewhere(*told)
    done = late_slurmd.run()
    assert done.returncode == 1
    assert "node-1: job 7: Slurm does not have it there any more" in done.stderr
    reason = f"Reason={PREFIX}the gate refused job 7: Slurm does not have it there any more"
    assert late_slurmd.ordered() == ["update", "NodeName=node-1", "State=DRAIN", reason]


@pytest.mark.parametrize("job", [7, PLACEHOLDER])
def test_a_placeholder_that_slurm_forgot_does_not_fail(late_slurmd: Slurmd, job: int) -> None:
    """slurmd starts the forgotten placeholder and then cancels the job. Later, the extender deletes the
    Pod."""
    late_slurmd.knows_not()
    if job != PLACEHOLDER:
        late_slurmd.signed("slurm-extender/2/k/n/p/u/1.1")
    assert late_slurmd.run(job=job).returncode == 0
    assert late_slurmd.ordered() == []


@pytest.mark.parametrize(
    ("elsewhere", "started"),
    [
        ((), 60),  # Slurm has requeued the job, so slurmd stops it
        ((77, 7, 8), 0),  # 7 is a task of a job array
    ],
)
def test_a_job_that_slurm_did_not_forget_starts(
    late_slurmd: Slurmd, elsewhere: tuple[int, ...], started: int
) -> None:
    late_slurmd.has_elsewhere(*elsewhere)
    late_slurmd.slurmctld_started(started)
    assert late_slurmd.run().returncode == 0
    assert late_slurmd.ordered() == []


def test_a_late_job_waits_for_slurmctld_and_does_not_fail(slurmd: Slurmd) -> None:
    slurmd.extenders(Extender(409, *WAITING, 204))
    slurmd.patience(4)
    slurmd.remembers("", status=1)
    assert slurmd.run().returncode == 0
    assert slurmd.times_asked() >= 1


def test_last_reply_of_an_extender_counts_after_the_extender_ends(slurmd: Slurmd) -> None:
    """After a loss of state, slurmctld does not know the ended placeholder. So only the last reply of
    the extender shows the Pod on the node."""
    slurmd.extenders(leader := Extender(409, 409))
    slurmd.patience(4)
    Timer(1.0, leader.close).start()
    done = slurmd.run()
    assert done.returncode == 1
    assert "no extender answers; before: " in done.stderr
    assert "default/p" in done.stderr


def test_gate_does_not_ask_slurm_about_a_job_that_did_not_wait(slurmd: Slurmd) -> None:
    slurmd.extenders(Extender(204))
    slurmd.knows_not()
    slurmd.patience(20)
    assert slurmd.run().returncode == 0
    assert slurmd.times_asked() == 0


def test_job_that_waits_too_long_fails_and_names_the_pods(slurmd: Slurmd) -> None:
    slurmd.extenders(leader := Extender(409))
    slurmd.patience(2)
    began = time.monotonic()
    done = slurmd.run()
    assert done.returncode == 1
    assert 'node-1: {"Pods":["default/p","default/q"]}' in done.stderr
    assert len(leader.asked) > 1
    assert 0.9 < time.monotonic() - began < 5


@pytest.mark.parametrize("state", ["idle", "mixed", "allocated*", "completing"])
def test_rejected_job_drains_the_node_with_a_reason_of_the_gate(slurmd: Slurmd, state: str) -> None:
    slurmd.extenders(Extender(409))
    slurmd.node_is(state)
    assert slurmd.run().returncode == 1
    reason = f"Reason={PREFIX}the gate refused job 7: Pods default/p,default/q"
    assert slurmd.ordered() == ["update", "NodeName=node-1", "State=DRAIN", reason]
    assert observed(slurm_node("DRAIN", reason=reason.removeprefix("Reason="))).drained_by_its_gate


@pytest.mark.parametrize("state", ["draining", "drained*", "down", "failing", None])
def test_node_out_of_service_or_of_unknown_state_is_not_drained(
    slurmd: Slurmd, state: str | None
) -> None:
    slurmd.extenders(Extender(409))
    if state is not None:
        slurmd.node_is(state)
    assert slurmd.run().returncode == 1
    assert slurmd.ordered() == []


@pytest.mark.parametrize(("answer", "status"), [(204, 0), (409, 1)])
def test_extender_decides_whether_a_job_is_a_placeholder(
    slurmd: Slurmd, answer: int, status: int
) -> None:
    """The job's id is in the placeholders' range, but Slurm's own ids may have reached this range,
    too."""
    slurmd.extenders(leader := Extender(answer))
    assert slurmd.run(job=PLACEHOLDER).returncode == status
    assert leader.asked[0][0] == f"/hooks/v1/nodes/node-1/clear?wait=5&job={PLACEHOLDER}"


@pytest.mark.parametrize(
    ("job", "admin_comment", "status"),
    [
        (PLACEHOLDER, "slurm-extender/c/default/p/u/1.0", 0),
        (PLACEHOLDER, "", 1),
        (PLACEHOLDER, "slurm-extender", 1),
        (4711, "slurm-extender/c/default/p/u/1.0", 0),
    ],
)
def test_without_extender_placeholder_is_known_by_its_key(
    slurmd: Slurmd, job: int, admin_comment: str, status: int
) -> None:
    slurmd.extenders(DOWN)
    slurmd.signed(admin_comment)
    slurmd.remembers(f"{PLACEHOLDER + 1} CANCELLED\\n")
    assert slurmd.run(job=job).returncode == status


@pytest.mark.parametrize(
    ("answers", "status"),
    [
        ((421, 204), 0),
        ((204, 421), 0),
        ((421, 421), 0),
        ((204, 204), 0),
        ((204, None), 0),
        ((503, 204, 503, 421), 0),
        ((204, 409), 1),
        ((409, 204), 1),
        ((421, 409), 1),
        ((421, None), 1),
        ((421, 503), 1),
        ((404,), 1),
        ((), 1),
    ],
)
def test_each_answering_cluster_must_report_node_clear_or_foreign(
    slurmd: Slurmd, answers: tuple[int | None, ...], status: int
) -> None:
    """The node has an ended placeholder. In `answers`, None stands for an unreachable extender, and 503
    is the answer of a standby replica."""
    slurmd.extenders(*(DOWN if each is None else Extender(each) for each in answers))
    slurmd.remembers(f"{PLACEHOLDER} CANCELLED\\n")
    assert slurmd.run().returncode == status


def test_hanging_extender_delays_other_clusters_only_a_few_seconds(slurmd: Slurmd) -> None:
    with hanging() as url:
        slurmd.extenders(url, Extender(204))
        began = time.monotonic()
        assert slurmd.run().returncode == 0
        assert time.monotonic() - began < 9


def test_message_names_the_pods_of_all_clusters(slurmd: Slurmd) -> None:
    slurmd.extenders(one := Extender(409), other := Extender(409))
    one.pods, other.pods, other.pause = ["default/p"], ["ml/q"], 0.3
    slurmd.node_is("idle")
    done = slurmd.run()
    assert 'node-1: {"Pods":["default/p"]} {"Pods":["ml/q"]}' in done.stderr
    assert slurmd.ordered()[-1].endswith("the gate refused job 7: Pods default/p Pods ml/q")


@contextmanager
def gone() -> Iterator[str]:
    """Yields the URL of a host that is gone. As the listener's queue is full, the kernel drops all
    packets without an error."""
    with socket.socket() as lost, ExitStack() as waiting:
        lost.bind(("127.0.0.1", 0))
        lost.listen(0)
        address = lost.getsockname()
        for _ in range(4):
            each = waiting.enter_context(socket.socket())
            each.setblocking(False)
            each.connect_ex(address)
        yield f"http://127.0.0.1:{address[1]}"


@contextmanager
def hanging() -> Iterator[str]:
    """Yields the URL of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as hangs:
        yield f"http://127.0.0.1:{hangs.getsockname()[1]}"


def test_several_lost_hosts_cost_no_more_time_than_one(slurmd: Slurmd) -> None:
    with gone() as url:
        slurmd.extenders(*[url] * 4, leader := Extender(204))
        began = time.monotonic()
        assert slurmd.run().returncode == 0
        assert time.monotonic() - began < 4
        assert leader.asked


@pytest.mark.parametrize("other", [gone, hanging])
def test_placeholder_waits_only_for_its_own_extender(
    slurmd: Slurmd, other: Callable[[], AbstractContextManager[str]]
) -> None:
    with other() as url:
        slurmd.extenders(url, Extender(OWN), url)
        began = time.monotonic()
        assert slurmd.run(job=PLACEHOLDER).returncode == 0
        assert time.monotonic() - began < 1


@pytest.mark.parametrize("other", [421, 503, 204])
def test_a_placeholder_of_a_cluster_that_answers_starts(slurmd: Slurmd, other: int) -> None:
    slurmd.extenders(Extender(other), Extender(OWN))
    assert slurmd.run(job=PLACEHOLDER).returncode == 0


def test_pod_of_another_cluster_on_the_node_stops_a_placeholder(slurmd: Slurmd) -> None:
    slurmd.extenders(other := Extender(409), own := Extender(OWN))
    own.pause = 0.3
    assert slurmd.run(job=PLACEHOLDER).returncode == 1
    assert own.asked
    assert other.asked


def test_native_job_needs_the_replies_of_all_extenders(slurmd: Slurmd) -> None:
    """Each cluster may have Pods on the node, so the gate must not ignore a late reply."""
    slurmd.extenders(Extender(204), other := Extender(409))
    other.pause = 0.3
    assert slurmd.run().returncode == 1


@pytest.mark.parametrize("foreign", [False, True])
@pytest.mark.parametrize(
    "remembered",
    ["", "7 RUNNING\\n8 COMPLETED\\n", f"{PLACEHOLDER} RUNNING\\n", f"{PLACEHOLDER} CONFIGURING\\n"],
)
def test_without_extender_node_without_ended_placeholders_is_clear(
    slurmd: Slurmd, remembered: str, foreign: bool
) -> None:
    slurmd.extenders(*[Extender(421)] * foreign, DOWN)
    slurmd.remembers(remembered)
    assert slurmd.run().returncode == 0


@pytest.mark.parametrize(
    ("waits", "status"),
    [
        ({"nodes": "node-1"}, 1),
        ({"nodes": "node-[1-2]"}, 1),
        ({"nodes": "other,node-1"}, 1),
        ({"nodes": "node-1", "job": 12}, 0),
        ({"nodes": "node-1", "priority": 1}, 0),  # the user has requested the node
        ({"nodes": "node-1", "attempt": ADOPTED_ATTEMPT}, 0),  # such a job counts as an unmanaged Pod
        ({"nodes": "node-11"}, 0),
        ({"nodes": "node-[11-12]"}, 0),
        ({"nodes": ""}, 0),
    ],
)
def test_without_extender_node_that_a_lost_job_waits_for_is_not_clear(
    slurmd: Slurmd, waits: dict[str, Any], status: int
) -> None:
    slurmd.extenders(DOWN)
    slurmd.waits_for(**waits)
    assert slurmd.run().returncode == status


@pytest.mark.parametrize("state", ["CANCELLED", "PREEMPTED", "COMPLETING", "SUSPENDED", "TIMEOUT"])
def test_without_extender_node_with_an_ended_placeholder_is_not_clear(
    slurmd: Slurmd, state: str
) -> None:
    slurmd.extenders(DOWN, Extender(503))
    slurmd.remembers(f"7 RUNNING\\n{PLACEHOLDER} {state}\\n")
    done = slurmd.run()
    assert done.returncode == 1
    assert "no extender answers" in done.stderr


@pytest.mark.parametrize(
    ("shown", "status"),
    [
        ({}, 0),
        ({"suspended": "2026-11-30T09:36:16", "comment": FORGED}, 1),
        ({"restarts": 1, "comment": FORGED}, 1),
        ({"job": PLACEHOLDER + 2}, 1),  # scontrol omits one of the two placeholders
    ],
)
def test_without_extender_suspended_or_restarted_placeholder_blocks_jobs(
    slurmd: Slurmd, shown: dict[str, Any], status: int
) -> None:
    """The gate calls scontrol once for both placeholders of the node."""
    slurmd.extenders(DOWN, Extender(503))
    slurmd.remembers(f"{PLACEHOLDER} RUNNING\\n{PLACEHOLDER + 1} CONFIGURING\\n")
    slurmd.shows(**{"job": PLACEHOLDER + 1} | shown)
    assert slurmd.run().returncode == status
    assert slurmd.times_shown() == 1


def test_without_extender_ended_placeholder_stays_ended(slurmd: Slurmd) -> None:
    slurmd.extenders(DOWN)
    slurmd.patience(3)
    slurmd.remembers(f"{PLACEHOLDER} SUSPENDED\\n", then=f"{PLACEHOLDER} RUNNING\\n")
    assert slurmd.run().returncode == 1
    assert slurmd.times_asked() > 1


def test_without_extender_restarts_of_the_job_itself_do_not_count(slurmd: Slurmd) -> None:
    """The starting job has been requeued once, and has an id in the placeholders' range. Only restarts
    of other placeholders block the job."""
    slurmd.extenders(DOWN)
    slurmd.shows(PLACEHOLDER, restarts=1)
    assert slurmd.run(job=PLACEHOLDER).returncode == 0


@pytest.mark.parametrize("begun", ["", "7 RUNN"])
def test_no_job_starts_without_extender_and_slurmctld(slurmd: Slurmd, begun: str) -> None:
    slurmd.extenders(DOWN)
    slurmd.remembers(begun, status=1)
    done = slurmd.run()
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr


@pytest.mark.parametrize("seconds_ago", [5, None])
def test_without_extender_no_job_starts_just_after_slurmctld_starts(
    slurmd: Slurmd, seconds_ago: int | None
) -> None:
    slurmd.extenders(DOWN)
    slurmd.slurmctld_started(seconds_ago)
    assert slurmd.run().returncode == 1
    slurmd.slurmctld_started(40)
    assert slurmd.run().returncode == 0


def test_job_waits_after_a_start_of_slurmctld_and_does_not_fail(slurmd: Slurmd) -> None:
    slurmd.extenders(DOWN)
    slurmd.slurmctld_started(27)
    slurmd.patience(20)
    assert slurmd.run().returncode == 0


def test_leading_backup_counts_as_just_started_for_30_seconds(slurmd: Slurmd, tmp_path: Path) -> None:
    """BOOT_TIME does not help: BOOT_TIME is the time when the backup started, long before the
    takeover."""
    slurmd.extenders(DOWN)
    slurmd.has_backup(leads=True)
    assert slurmd.run().returncode == 1
    slurmd.backup_leads(False)
    assert slurmd.run().returncode == 0
    slurmd.backup_leads(True)
    slurmd.patience(8)
    (hasty := tmp_path / "hasty-gate").write_text(
        SCRIPT.read_text().replace("led_since + 30", "led_since + 3")
    )
    hasty.chmod(0o755)
    assert slurmd.run(script=hasty).returncode == 0


@pytest.mark.parametrize(("at_first", "status"), [(True, 0), (False, 1)])
def test_only_a_takeover_by_the_backup_during_the_wait_fails_a_job(
    slurmd: Slurmd, at_first: bool, status: int
) -> None:
    slurmd.extenders(Extender(*(409,) * 40, 204))
    slurmd.patience(20)
    slurmd.has_elsewhere()
    slurmd.has_backup(leads=at_first)
    Timer(5.0, slurmd.backup_leads, [True]).start()
    assert slurmd.run().returncode == status


def test_without_extender_gate_asks_slurmctld_every_two_seconds(slurmd: Slurmd) -> None:
    slurmd.extenders(DOWN)
    slurmd.slurmctld_started(5)
    slurmd.patience(4)
    assert slurmd.run().returncode == 1
    assert slurmd.times_asked() in (6, 9)  # two or three rounds with three calls each


def test_gate_does_not_wait_for_a_hanging_slurmctld(slurmd: Slurmd) -> None:
    slurmd.extenders(DOWN)
    slurmd.slurmctld_hangs()
    assert slurmd.run().returncode == 1


def test_timeouts_grow_from_round_to_round_on_a_busy_node(slurmd: Slurmd) -> None:
    slurmd.extenders(DOWN)
    slurmd.is_busy()
    slurmd.patience(14)
    assert slurmd.run().returncode == 0


def test_longer_timeouts_do_not_extend_the_total_wait(slurmd: Slurmd) -> None:
    slurmd.extenders(DOWN)
    slurmd.slurmctld_hangs()
    slurmd.patience(8)
    began = time.monotonic()
    assert slurmd.run().returncode == 1
    assert time.monotonic() - began < 13


def test_gate_fails_without_its_configuration(slurmd: Slurmd) -> None:
    """If the gate fails, slurmd drains the node and logs the error. So no job starts without a check."""
    done = slurmd.run()
    assert done.returncode == 1
    assert "gate.conf" in done.stderr


def test_administrator_sees_the_pods_that_a_node_waits_for(slurmd: Slurmd) -> None:
    slurmd.extenders(leader := Extender(409))
    slurmd.node_is("idle")
    done = slurmd.run("node-9")
    assert done.returncode == 1
    assert slurmd.ordered() == []
    assert 'node-9: {"Pods":["default/p","default/q"]}' in done.stderr
    assert leader.asked[0][0] == "/hooks/v1/nodes/node-9/clear?wait=5"


# Tests with a node agent


@pytest.mark.parametrize(
    ("said", "arguments", "asked"),
    [
        ("ask", (), 1),
        ("clear", (), 1),  # an agent of an older version does not know of Bindings under way
        ("", (), 1),
        ("there ml/p", ("node-1",), 0),  # called by a person: the agent may be on another node
    ],
)
@pytest.mark.parametrize(("answer", "status"), [(204, 0), (409, 1)])
def test_extender_is_asked_if_no_pod_lingers(
    slurmd: Slurmd, said: str, arguments: tuple[str, ...], asked: int, answer: int, status: int
) -> None:
    slurmd.extenders(leader := Extender(answer))
    agent = slurmd.agent(said)
    assert slurmd.run(*arguments).returncode == status
    assert (agent.asked, len(leader.asked)) == (asked, 1)


@pytest.mark.parametrize("is_away", [True, False])
def test_gate_reports_a_missing_agent_to_the_extender(slurmd: Slurmd, is_away: bool) -> None:
    slurmd.extenders(leader := Extender(204))
    agent = slurmd.agent("ask")
    if is_away:
        agent.close()
    assert slurmd.run().returncode == 0
    assert leader.asked[0][0].endswith("&job=7&agent=away" if is_away else "&job=7")


def test_a_native_job_waits_for_processes_of_pods_that_are_gone(slurmd: Slurmd) -> None:
    slurmd.extenders(leader := Extender(204))
    agent = slurmd.agent("there ml/p", "there ml/p", "ask")
    slurmd.patience(20)
    assert slurmd.run().returncode == 0
    assert (agent.asked, len(leader.asked)) == (3, 3)


def test_processes_that_stay_fail_the_job_and_drain_the_node(slurmd: Slurmd) -> None:
    slurmd.extenders(Extender(204))
    slurmd.agent("there ml/p ml/q")
    slurmd.node_is("idle")
    done = slurmd.run()
    assert done.returncode == 1
    assert "node-1: Pods:ml/p,ml/q" in done.stderr
    assert f"Reason={PREFIX}the gate refused job 7: Pods ml/p,ml/q" in slurmd.ordered()


def test_placeholders_do_not_wait_for_processes_of_other_pods(slurmd: Slurmd) -> None:
    slurmd.agent("there ml/p")
    slurmd.extenders(Extender(OWN))
    assert slurmd.run(job=PLACEHOLDER).returncode == 0
    slurmd.extenders(DOWN)
    slurmd.signed(str(PlaceholderKey("kubernetes", "default", "p", "u", 1)))
    assert slurmd.run(job=PLACEHOLDER).returncode == 0
