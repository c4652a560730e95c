"""`slurm-extender uninstall` does what is chosen with what an uninstalled extender has left.

It uses the extender's own settings, and waits until no replica leads. Pods that run go on, also those
whose job it ends.
"""

import asyncio
import sys
from dataclasses import dataclass
from enum import StrEnum

from extender.commands.systems import kubernetes_of, slurm_of
from extender.settings import Settings
from extender.uninstall.leftovers import Done, StillLeads, end_jobs, lift_gates, nobody_leads
from kubernetes_client.errors import KubernetesError, NoCredentials
from service.logging import configure_logging
from service.settings import from_environment
from slurm_client.errors import SlurmError


class Gates(StrEnum):
    """What becomes of the gate of Pods that wait."""

    KEEP = "keep"
    LIFT = "lift"


class Jobs(StrEnum):
    """What becomes of live jobs."""

    KEEP = "keep"
    END = "end"


@dataclass(frozen=True, slots=True)
class Choice:
    """What is to be done, and for how many seconds a replica may go on leading."""

    gates: Gates = Gates.KEEP
    jobs: Jobs = Jobs.KEEP
    timeout_s: float = 120.0


def run(choice: Choice) -> int:
    """Prints what was done. Returns the exit status: 0; 1 where something is left that was to go; 2
    where a system cannot be read, or a replica leads."""
    settings = from_environment(Settings)
    configure_logging(settings.log_level)
    try:
        done = asyncio.run(_clean_up(settings, choice))
    except StillLeads as error:
        print(f"{error}: uninstall the extender first", file=sys.stderr)
        return 2
    except (SlurmError, KubernetesError, NoCredentials) as error:
        print(f"could not be read: {error}", file=sys.stderr)
        return 2
    print(f"gates lifted: {done.lifted}; jobs ended: {done.ended}")
    for problem in done.problems:
        print(problem, file=sys.stderr)
    return 1 if done.problems else 0


async def _clean_up(settings: Settings, choice: Choice) -> Done:
    done = Done()
    async with slurm_of(settings) as slurm, kubernetes_of(settings) as kubernetes:
        await nobody_leads(kubernetes, settings.namespace, settings.lease_duration_s, choice.timeout_s)
        if choice.jobs is Jobs.END:
            rules = settings.placement_config(await kubernetes.cluster_uid())
            await end_jobs(slurm, rules, done)
        if choice.gates is Gates.LIFT:
            await lift_gates(kubernetes, settings.scheduler_name, done)
    return done
