"""Runs the scripts of examples/ on a cluster, as a reader of the pages does."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Final

from deploy.local.cluster import Cluster
from deploy.local.layout import CHECKOUT

EXAMPLES: Final = CHECKOUT / "examples"
NAMES: Final = tuple(sorted(folder.name for folder in EXAMPLES.iterdir() if folder.is_dir()))
STATUS: Final = {"PASS": 0, "FAIL": 1, "SKIPPED": 77}
LONGEST_S: Final = 300


def called(name: str) -> str:
    """Returns the prefix that the names of all objects of an example have."""
    return name.partition("-")[2]


@dataclass(frozen=True)
class Told:
    """Result of a script: the verdict and the reason from the last line, and the whole output."""

    verdict: str
    why: str
    printed: str

    def __str__(self) -> str:
        return self.printed


class Running:
    """A running script."""

    def __init__(self, script: str, *arguments: str, environment: dict[str, str]) -> None:
        self._printed = ""
        self.process = subprocess.Popen(
            [EXAMPLES / script, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def prints(self, words: str) -> None:
        """Waits until the script has printed a line with the given words."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._printed += line
            if words in line:
                return
        raise AssertionError(f"it never says {words}: {self._printed}")

    def whole(self) -> str:
        """Waits for the end of the script, and returns the whole output."""
        try:
            rest, _ = self.process.communicate(timeout=LONGEST_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            rest, _ = self.process.communicate()
            raise AssertionError(f"it does not end: {self._printed}{rest}") from None
        return self._printed + rest

    def told(self) -> Told:
        """Waits for the end of the script, and returns the result. Checks that the exit status agrees
        with the verdict."""
        printed = self.whole()
        verdict, _, why = printed.strip().rpartition("\n")[2].partition(": ")
        assert STATUS.get(verdict) == self.process.returncode, printed
        return Told(verdict, why, printed)


@dataclass(frozen=True)
class Reader:
    """Runs the scripts on one cluster, as a reader of the pages would. The scripts get only the
    variables PATH and HOME, and the given variables."""

    cluster: Cluster

    def environment(self, given: dict[str, str]) -> dict[str, str]:
        path = f"{self.cluster.directory / 'bin'}:{os.environ['PATH']}"
        return {"PATH": path, "HOME": str(self.cluster.directory), **given}

    def begins(self, name: str, **given: str) -> Running:
        return Running(f"{name}/run.sh", environment=self.environment(given))

    def runs(self, name: str, **given: str) -> Told:
        return self.begins(name, **given).told()

    def runs_all(self, *chosen: str, **given: str) -> Running:
        return Running("run-all.sh", *chosen, environment=self.environment(given))

    def on_the_component(self, does: str, component: str) -> str:
        """Returns a shell command that stops or starts a component of the cluster, depending on
        `does`."""
        python, directory = sys.executable, self.cluster.directory
        return f"cd {CHECKOUT} && {python} -m deploy.local {does} {component} --directory {directory}"

    def what_there_is(self) -> list[str]:
        """Returns a line for everything that a script might leave behind: objects, jobs, reasons of
        nodes, and reservations. Leaves out the objects of the example PATIENT."""
        kinds = "pods,deployments,replicasets,statefulsets,jobs,cronjobs,services,nodes"
        each = "{.kind} {.metadata.name} {.spec.unschedulable}"
        shown = f"jsonpath={{range .items[*]}}{each}{{'\\n'}}{{end}}"
        kubectl, slurm = self.cluster.kubectl, self.cluster.run_slurm
        listed = (
            kubectl("get", kinds, "-o", shown).stdout,
            slurm("squeue", "-h", "-o", "%i %j").stdout,
            slurm("sinfo", "-h", "-N", "-o", "%N %E").stdout,
            slurm("scontrol", "-o", "show", "reservation").stdout,
        )
        lines = [line for text in listed for line in text.splitlines()]
        return [line for line in lines if called(PATIENT) not in line]


PATIENT: Final = "10-a-time-limit"
"""The longest example. The example waits for more than a minute, so the tests run other examples at the
same time."""
