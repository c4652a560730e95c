"""deploy/slurm/slurm-extender-gate as slurmd runs it: what lets a job through, and what does not."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from threading import Thread, Timer
from typing import Any

import pytest

from deploy.local.layout import CHECKOUT
from extender.node_sync.drains import PREFIX
from extender.placement.transitions.next_effect import BEFORE_ALL
from tests.node_sync.test_drain_decision import observed, slurm_node
from wellknown.job_key import ADOPTED_ATTEMPT, PlaceholderKey

SCRIPT = CHECKOUT / "deploy/slurm/slurm-extender-gate"
PLACEHOLDER = 40_000_000
TRIES_S = 0
"""Default of SLURM_EXTENDER_GATE_S: the gate asks once."""
WAITING = (409,) * 10
"""Answers that take a job more than two seconds."""


OWN = "204, for a placeholder of its own"


class Extender:
    """Answers questions one after the other; the last answer stays."""

    def __init__(self, *statuses: int | str) -> None:
        self.statuses = list(statuses)
        self.pause = 0.0
        """How long it takes to answer."""
        self.pods = ["default/p", "default/q"]
        self.asked: list[tuple[str, str | None]] = []
        extender = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                extender.asked.append((self.path, self.headers["Authorization"]))
                time.sleep(extender.pause)
                said = extender.statuses
                answer = said.pop(0) if len(said) > 1 else said[0]
                status = 204 if answer == OWN else int(answer)
                body = (
                    b""
                    if status == 204
                    else json.dumps({"Pods": extender.pods}, separators=(",", ":")).encode()
                )
                self.send_response(status)
                if answer == OWN:
                    self.send_header("slurm-extender-job", "placeholder")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class Agent:
    """The node agent, on the socket of its Node."""

    def __init__(self, folder: Path, *answers: str) -> None:
        self.answers = list(answers)
        self.asked = 0
        agent = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                agent.asked += 1
                said = agent.answers.pop(0) if len(agent.answers) > 1 else agent.answers[0]
                body = f"{said}\n".encode()
                self.send_response(200 if said and self.path == "/gate/v1/clear" else 500)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

            def address_string(self) -> str:
                return "local"

        class Server(ThreadingMixIn, UnixStreamServer):
            daemon_threads = True

        self.server = Server(str(folder / "agent"), Handler)
        Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class Slurmd:
    """Runs the script with the little environment that slurmd gives it, and a squeue that says what
    slurmctld remembers of the node."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._extenders: list[Extender] = []
        self._agent: Agent | None = None
        (folder / "token").write_text("secret\n")
        self.waits_for("")
        self.remembers("")
        self.signed("")
        self._command("sinfo", "exit 1")
        self.slurmctld_started(3600)

    def remembers(self, text: str, status: int = 0) -> None:
        self._squeue(text, status, "7", status)

    def has_elsewhere(self, *jobs: int) -> None:
        """The job is not on the node; those are."""
        self._squeue("", 0, "".join(f"{job}\\n" for job in jobs), 0)

    def knows_not(self) -> None:
        self._squeue("", 0, "slurm_load_jobs error: Invalid job id specified", 1)

    def _squeue(self, text: str, status: int, job: str, job_status: int) -> None:
        """What is said of the node's jobs, and of the one that is to start."""
        says = f"printf '{job}' >&{2 if job_status else 1}; exit {job_status}"
        own = f"*--jobs=7\\ --nodelist=node-1*) {says}"
        key = f"*--jobs=*\\ --Format=admin_comment:16*) cat {self._folder}/key; exit"
        adopted = f"*--jobs=*\\ --Format=admin_comment:1000*) cat {self._folder}/waiting-key; exit"
        waits = f"*--states=PENDING*) cat {self._folder}/waits; exit {status}"
        script = (
            f'echo >>{self._folder}/asked; case "$*" in {own} ;; {adopted} ;; {key} ;; {waits} ;; esac'
        )
        self._command("squeue", f"{script}; printf '{text}'; exit {status}")

    def signed(self, admin_comment: str) -> None:
        """What the job that is to start has as its AdminComment."""
        (self._folder / "key").write_text(f"{admin_comment:.16}\n")

    def waits_for(
        self, nodes: str, job: int = PLACEHOLDER, priority: int = BEFORE_ALL, attempt: int = 1
    ) -> None:
        """A job waits, and can start on these nodes alone."""
        (self._folder / "waits").write_text(f"1 1 node-1\n{job} {priority} {nodes}\n")
        key = PlaceholderKey("kubernetes", "default", "p", "u", attempt)
        (self._folder / "waiting-key").write_text(f"{key} \n")

    def slurmctld_hangs(self) -> None:
        self._command("squeue", "sleep 60")

    def times_asked(self) -> int:
        """How often squeue has run."""
        asked = self._folder / "asked"
        return len(asked.read_text().splitlines()) if asked.exists() else 0

    def slurmctld_started(self, seconds_ago: int | None) -> None:
        """What scontrol says of it; None: nothing."""
        shows = "exit 1"
        if seconds_ago is not None:
            begin = datetime.fromtimestamp(time.time() - seconds_ago).isoformat(timespec="seconds")  # noqa: DTZ006 - local
            shows = f"echo 'AuthType  = auth/slurm'; echo 'BOOT_TIME               = {begin}'; exit"
        told = f'printf "%s\\n" "$@" >>{self._folder}/told'
        expands = (
            "echo $3 | sed 's/node-.\\([0-9]*\\)-\\([0-9]*\\).$/node-\\1,node-\\2/' | tr , '\\n'; exit"
        )
        names = f'[ "$2" = hostnames ] && {{ {expands}; }}'
        self._command("scontrol", f'{names}; [ "$1" = show ] && {{ {shows}; }}; {told}')

    def node_is(self, state: str) -> None:
        """What sinfo says; without it, it says nothing."""
        self._command("sinfo", f"echo {state}")

    def ordered(self) -> list[str]:
        """What scontrol was told, a word a line."""
        told = self._folder / "told"
        return told.read_text().splitlines() if told.exists() else []

    def _command(self, name: str, script: str) -> None:
        (self._folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (self._folder / name).chmod(0o755)

    def extenders(self, *each: Extender | str) -> None:
        self._extenders = [one for one in each if isinstance(one, Extender)]
        urls = " ".join(one if isinstance(one, str) else one.url for one in each)
        (self._folder / "gate.conf").write_text(
            f'SLURM_EXTENDER_HOOKS_URLS="{urls}"\n'
            f"SLURM_EXTENDER_HOOKS_TOKEN_FILE={self._folder}/token\nSLURM_EXTENDER_GATE_S={TRIES_S}\n"
            f"SLURM_EXTENDER_AGENT={self._folder}/agent\n"
        )

    def agent(self, *answers: str) -> Agent:
        """A node agent runs here."""
        assert shutil.which("curl"), "curl is needed: apt-get install curl"
        self._agent = Agent(self._folder, *answers)
        return self._agent

    def patience(self, seconds: int) -> None:
        with (self._folder / "gate.conf").open("a") as configuration:
            configuration.write(f"SLURM_EXTENDER_GATE_S={seconds}\n")

    def run(self, *arguments: str, job: int = 7) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{self._folder}:{os.environ['PATH']}",
            "SLURM_EXTENDER_HOOK_CONF": str(self._folder / "gate.conf"),
            "SLURM_JOB_ID": str(job),
            "SLURMD_NODENAME": "node-1",
        }
        return subprocess.run(
            [SCRIPT, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    def close(self) -> None:
        for each in self._extenders:
            each.close()
        if self._agent is not None:
            self._agent.close()


DOWN = "http://127.0.0.1:1"


@pytest.fixture
def slurmd(tmp_path: Path) -> Iterator[Slurmd]:
    made = Slurmd(tmp_path)
    yield made
    made.close()


def test_a_clear_node_lets_the_job_through(slurmd: Slurmd) -> None:
    slurmd.extenders(leader := Extender(204))
    assert slurmd.run().returncode == 0
    assert leader.asked == [("/hooks/v1/nodes/node-1/clear?wait=5&job=7", "Bearer secret")]


@pytest.mark.parametrize("other", [DOWN, "http://no.such.host.invalid:8000", Extender(503)])
def test_the_replica_that_knows_is_found(slurmd: Slurmd, other: Extender | str) -> None:
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
    slurmd: Slurmd, told: tuple[int, ...] | None
) -> None:
    slurmd.extenders(Extender(409, *WAITING, 204))
    slurmd.patience(20)
    slurmd.node_is("idle")
    slurmd.slurmctld_started(0)
    slurmd.knows_not() if told is None else slurmd.has_elsewhere(*told)
    done = slurmd.run()
    assert done.returncode == 1
    assert "node-1: job 7: Slurm does not have it there any more" in done.stderr
    reason = f"Reason={PREFIX}the gate refused job 7: Slurm does not have it there any more"
    assert slurmd.ordered() == ["update", "NodeName=node-1", "State=DRAIN", reason]


@pytest.mark.parametrize("job", [7, PLACEHOLDER])
def test_a_placeholder_that_slurm_forgot_does_not_fail(slurmd: Slurmd, job: int) -> None:
    """slurmd would have it cancelled, once it is there again, and the extender would delete the Pod."""
    slurmd.extenders(Extender(409, *WAITING, 204))
    slurmd.patience(20)
    slurmd.node_is("idle")
    slurmd.slurmctld_started(0)
    slurmd.knows_not()
    if job != PLACEHOLDER:
        slurmd.signed("slurm-extender/2/k/n/p/u/1.1")
    assert slurmd.run(job=job).returncode == 0
    assert slurmd.ordered() == []


def test_a_job_that_slurm_requeued_while_it_waited_is_slurmds_to_stop(slurmd: Slurmd) -> None:
    """slurmctld has not been started since: it has forgotten nothing."""
    slurmd.extenders(Extender(409, *WAITING, 204))
    slurmd.patience(20)
    slurmd.has_elsewhere()
    slurmd.slurmctld_started(60)
    assert slurmd.run().returncode == 0
    assert slurmd.ordered() == []


def test_one_task_of_an_array_is_told_from_the_others(slurmd: Slurmd) -> None:
    slurmd.extenders(Extender(409, *WAITING, 204))
    slurmd.patience(20)
    slurmd.slurmctld_started(0)
    slurmd.has_elsewhere(77, 7, 8)
    assert slurmd.run().returncode == 0


def test_a_job_that_has_waited_waits_for_a_slurmctld_that_is_away_and_does_not_fail_for_it(
    slurmd: Slurmd,
) -> None:
    slurmd.extenders(Extender(409, *WAITING, 204))
    slurmd.patience(4)
    slurmd.remembers("", status=1)
    assert slurmd.run().returncode == 0
    assert slurmd.times_asked() >= 1


def test_an_extender_that_has_named_a_pod_is_believed_when_it_is_away(slurmd: Slurmd) -> None:
    """A Slurm that lost its state knows of no placeholder that has ended."""
    leader = Extender(409, 409)
    slurmd.extenders(leader)
    slurmd.patience(4)
    Timer(1.0, leader.close).start()
    done = slurmd.run()
    assert done.returncode == 1
    assert "no extender answers; before: " in done.stderr
    assert "default/p" in done.stderr


def test_of_a_job_that_has_not_waited_slurm_is_not_asked(slurmd: Slurmd) -> None:
    slurmd.extenders(Extender(204))
    slurmd.knows_not()
    slurmd.patience(20)
    assert slurmd.run().returncode == 0
    assert slurmd.times_asked() == 0


def test_a_job_that_waits_too_long_fails_and_says_for_whom(slurmd: Slurmd) -> None:
    slurmd.extenders(leader := Extender(409))
    slurmd.patience(2)
    began = time.monotonic()
    done = slurmd.run()
    assert done.returncode == 1
    assert 'node-1: {"Pods":["default/p","default/q"]}' in done.stderr
    assert len(leader.asked) > 1
    assert 0.9 < time.monotonic() - began < 5


@pytest.mark.parametrize("state", ["idle", "mixed", "allocated*", "completing"])
def test_who_is_refused_leaves_a_drain_that_the_extender_takes_back(slurmd: Slurmd, state: str) -> None:
    slurmd.extenders(Extender(409))
    slurmd.node_is(state)
    assert slurmd.run().returncode == 1
    reason = f"Reason={PREFIX}the gate refused job 7: Pods default/p,default/q"
    assert slurmd.ordered() == ["update", "NodeName=node-1", "State=DRAIN", reason]
    assert observed(slurm_node("DRAIN", reason=reason.removeprefix("Reason="))).drained_by_its_gate


@pytest.mark.parametrize("state", ["draining", "drained*", "down", "failing"])
def test_what_is_out_of_service_already_keeps_its_reason(slurmd: Slurmd, state: str) -> None:
    slurmd.extenders(Extender(409))
    slurmd.node_is(state)
    assert slurmd.run().returncode == 1
    assert slurmd.ordered() == []


def test_where_slurm_does_not_say_how_a_node_is_it_is_left_as_it_is(slurmd: Slurmd) -> None:
    slurmd.extenders(Extender(409))
    assert slurmd.run().returncode == 1
    assert slurmd.ordered() == []


@pytest.mark.parametrize(("answer", "status"), [(204, 0), (409, 1)])
def test_whether_a_job_is_a_placeholder_is_the_extenders_to_say(
    slurmd: Slurmd, answer: int, status: int
) -> None:
    """Slurm's own ids may have come as far as the placeholders'."""
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
def test_while_nobody_answers_a_placeholder_is_known_by_its_key(
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
def test_of_several_clusters_all_that_answer_must_say_that_it_is_clear_or_not_theirs(
    slurmd: Slurmd, answers: tuple[int | None, ...], status: int
) -> None:
    """None is one that is down; 503 a replica that does not lead. A placeholder has ended there."""
    slurmd.extenders(*(DOWN if each is None else Extender(each) for each in answers))
    slurmd.remembers(f"{PLACEHOLDER} CANCELLED\\n")
    assert slurmd.run().returncode == status


def test_one_that_hangs_holds_up_the_nodes_of_others_for_some_seconds(slurmd: Slurmd) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hangs:
        slurmd.extenders(f"http://127.0.0.1:{hangs.getsockname()[1]}", Extender(204))
        began = time.monotonic()
        assert slurmd.run().returncode == 0
        assert time.monotonic() - began < 9


def test_a_node_of_no_cluster_that_answers_is_slurms_to_judge(slurmd: Slurmd) -> None:
    slurmd.extenders(Extender(421), DOWN)
    assert slurmd.run().returncode == 0


def test_the_pods_of_all_clusters_are_told(slurmd: Slurmd) -> None:
    slurmd.extenders(one := Extender(409), other := Extender(409))
    one.pods, other.pods, other.pause = ["default/p"], ["ml/q"], 0.3
    slurmd.node_is("idle")
    done = slurmd.run()
    assert 'node-1: {"Pods":["default/p"]} {"Pods":["ml/q"]}' in done.stderr
    assert slurmd.ordered()[-1].endswith("the gate refused job 7: Pods default/p Pods ml/q")


@contextmanager
def gone() -> Iterator[str]:
    """Where what is sent is lost without a word; gives the URL."""
    with socket.socket() as lost:
        lost.bind(("127.0.0.1", 0))
        lost.listen(0)
        address = lost.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(address)
        try:
            yield f"http://127.0.0.1:{address[1]}"
        finally:
            for each in waiting:
                each.close()


@contextmanager
def hanging() -> Iterator[str]:
    """Where a connection is taken, and nothing said; gives the URL."""
    with socket.socket() as hangs:
        hangs.bind(("127.0.0.1", 0))
        hangs.listen(5)
        yield f"http://127.0.0.1:{hangs.getsockname()[1]}"


def test_hosts_that_are_gone_cost_no_more_than_one_of_them(slurmd: Slurmd) -> None:
    with gone() as url:
        slurmd.extenders(*[url] * 4, leader := Extender(204))
        began = time.monotonic()
        assert slurmd.run().returncode == 0
        assert time.monotonic() - began < 4
        assert leader.asked


@pytest.mark.parametrize("other", [gone, hanging])
def test_a_placeholder_waits_for_no_other_extender_than_its_own(
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


def test_a_pod_of_another_cluster_that_believes_to_have_the_node_is_in_a_placeholders_way(
    slurmd: Slurmd,
) -> None:
    slurmd.extenders(other := Extender(409), own := Extender(OWN))
    own.pause = 0.3
    assert slurmd.run(job=PLACEHOLDER).returncode == 1
    assert own.asked
    assert other.asked


def test_a_native_job_hears_all_extenders(slurmd: Slurmd) -> None:
    """Several clusters may believe that they have its node."""
    slurmd.extenders(Extender(204), other := Extender(409))
    other.pause = 0.3
    assert slurmd.run().returncode == 1


@pytest.mark.parametrize(
    "remembered",
    ["", "7 RUNNING\\n8 COMPLETED\\n", f"{PLACEHOLDER} RUNNING\\n", f"{PLACEHOLDER} CONFIGURING\\n"],
)
def test_while_nobody_answers_a_node_without_ended_placeholders_is_clear(
    slurmd: Slurmd, remembered: str
) -> None:
    slurmd.extenders(DOWN)
    slurmd.remembers(remembered)
    assert slurmd.run().returncode == 0


@pytest.mark.parametrize(
    ("waits", "status"),
    [
        ({"nodes": "node-1"}, 1),
        ({"nodes": "node-[1-2]"}, 1),
        ({"nodes": "other,node-1"}, 1),
        ({"nodes": "node-1", "job": 12}, 0),
        ({"nodes": "node-1", "priority": 1}, 0),  # its author wants that node
        ({"nodes": "node-1", "attempt": ADOPTED_ATTEMPT}, 0),  # like an unmanaged Pod
        ({"nodes": "node-11"}, 0),
        ({"nodes": "node-[11-12]"}, 0),
        ({"nodes": ""}, 0),
    ],
)
def test_while_nobody_answers_a_node_is_not_clear_that_the_job_of_a_pod_there_waits_for(
    slurmd: Slurmd, waits: dict[str, Any], status: int
) -> None:
    """Slurm had lost that job."""
    slurmd.extenders(DOWN)
    slurmd.waits_for(**waits)
    assert slurmd.run().returncode == status


@pytest.mark.parametrize("state", ["CANCELLED", "PREEMPTED", "COMPLETING", "SUSPENDED", "TIMEOUT"])
def test_while_nobody_answers_a_node_with_an_ended_placeholder_is_not(
    slurmd: Slurmd, state: str
) -> None:
    slurmd.extenders(DOWN, Extender(503))
    slurmd.remembers(f"7 RUNNING\\n{PLACEHOLDER} {state}\\n")
    done = slurmd.run()
    assert done.returncode == 1
    assert "no extender answers" in done.stderr


@pytest.mark.parametrize("begun", ["", "7 RUNN"])
def test_while_nobody_answers_at_all_nobody_is_let_through(slurmd: Slurmd, begun: str) -> None:
    slurmd.extenders(DOWN)
    slurmd.remembers(begun, status=1)
    done = slurmd.run()
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr


@pytest.mark.parametrize("seconds_ago", [5, None])
def test_a_slurmctld_that_has_just_started_may_have_forgotten_a_pods_job(
    slurmd: Slurmd, seconds_ago: int | None
) -> None:
    slurmd.extenders(DOWN)
    slurmd.slurmctld_started(seconds_ago)
    assert slurmd.run().returncode == 1
    slurmd.slurmctld_started(40)
    assert slurmd.run().returncode == 0


def test_no_job_fails_only_because_slurmctld_has_just_started(slurmd: Slurmd) -> None:
    slurmd.extenders(DOWN)
    slurmd.slurmctld_started(27)
    slurmd.patience(20)
    assert slurmd.run().returncode == 0


def test_while_nobody_answers_slurmctld_is_asked_now_and_then(slurmd: Slurmd) -> None:
    slurmd.extenders(DOWN)
    slurmd.slurmctld_started(5)
    slurmd.patience(4)
    assert slurmd.run().returncode == 1
    assert slurmd.times_asked() in (6, 9)  # three times every two seconds, and as long as it takes


def test_a_slurmctld_that_hangs_is_not_waited_for(slurmd: Slurmd) -> None:
    slurmd.extenders(DOWN)
    slurmd.slurmctld_hangs()
    slurmd.patience(0)
    assert slurmd.run().returncode == 1


def test_without_its_configuration_it_fails(slurmd: Slurmd) -> None:
    """The node is drained, with this in slurmd's log: no job starts unasked."""
    done = slurmd.run()
    assert done.returncode == 1
    assert "gate.conf" in done.stderr


def test_a_person_is_told_for_whom_a_node_waits(slurmd: Slurmd) -> None:
    slurmd.extenders(leader := Extender(409))
    slurmd.node_is("idle")
    done = slurmd.run("node-9")
    assert done.returncode == 1
    assert slurmd.ordered() == []
    assert 'node-9: {"Pods":["default/p","default/q"]}' in done.stderr
    assert leader.asked[0][0] == "/hooks/v1/nodes/node-9/clear?wait=5"


# The node agent


def test_a_node_that_its_agent_knows_to_be_clear_needs_no_extender(slurmd: Slurmd) -> None:
    slurmd.extenders(leader := Extender(409))
    slurmd.agent("clear")
    assert slurmd.run().returncode == 0
    assert leader.asked == []


@pytest.mark.parametrize("said", ["ask", "", "nonsense"])
def test_where_the_agent_does_not_know_the_extender_is_asked(slurmd: Slurmd, said: str) -> None:
    slurmd.extenders(leader := Extender(204))
    agent = slurmd.agent(said)
    assert slurmd.run().returncode == 0
    assert (agent.asked, len(leader.asked)) == (1, 1)


def test_a_socket_that_nobody_serves_is_passed_by(slurmd: Slurmd) -> None:
    slurmd.extenders(Extender(204))
    slurmd.agent("clear").close()
    assert slurmd.run().returncode == 0


def test_a_native_job_waits_for_processes_of_pods_that_are_gone_in_kubernetes(slurmd: Slurmd) -> None:
    slurmd.extenders(leader := Extender(204))
    agent = slurmd.agent("there ml/p", "there ml/p", "clear")
    slurmd.patience(20)
    assert slurmd.run().returncode == 0
    assert (agent.asked, len(leader.asked)) == (3, 2)


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


def test_a_person_asks_no_agent_since_it_may_be_another_nodes(slurmd: Slurmd) -> None:
    slurmd.extenders(leader := Extender(204))
    agent = slurmd.agent("clear")
    assert slurmd.run("node-1").returncode == 0
    assert (agent.asked, len(leader.asked)) == (0, 1)
