"""Keeps Pods without a Slurm job off the cores of jobs. The limit is the file cpuset.cpus of each Pod's
own cgroup."""

from collections.abc import Iterable, Mapping

import structlog

from node_agent.enforcement.limits import text_of
from node_agent.enforcement.others import CpuSplit, Native, of_no_job
from node_agent.machine.cpus import Cpus
from node_agent.pods.cgroups import CPUS, PodCgroup, limits_now, write
from node_agent.pods.claims import Claim

log = structlog.get_logger()


class OthersOff:
    """Keeps the files of the Pods right. Writes a file only if the text is wrong."""

    def __init__(self) -> None:
        self._full = False
        """True if jobs have every core."""

    def keep(
        self, claims: Mapping[str, Claim], cgroups: Iterable[PodCgroup], cpus: Cpus, native: Native
    ) -> str:
        """Keeps all Pods without a job off the cores of jobs. If a file cannot be read or written,
        returns the name of the Pod and the reason. Otherwise, returns ""."""
        split = CpuSplit.of(cpus, claims.values(), native.cpus)
        if self._full != (not split.left):
            self._full = not split.left
            words = (
                "have every core: Pods of no job keep all" if self._full else "have every core no more"
            )
            log.info(f"jobs {words}", cpus_left=len(split.left))
        problem = ""
        for cgroup in cgroups:
            claim = claims.get(cgroup.uid)
            adopted = claim is not None and claim.adopted  # may have a limit from before the adoption
            if not adopted and not of_no_job(cgroup.uid, claims):
                continue
            if claim is not None and claim.slurmd:  # slurmd's Pod has its own share (slurmd_share)
                continue
            try:
                now = text_of(limits_now(cgroup.place), CPUS)
                if text := split.correction(now, keeps_all=adopted or cgroup.uid in native.pods):
                    write(cgroup.place / CPUS, text)
            except (FileNotFoundError, NotADirectoryError):  # the cgroup was removed just now
                continue
            except (OSError, ValueError) as error:
                problem = f"Pod {claim.pod if claim else cgroup.uid}: {error}"
        return problem
