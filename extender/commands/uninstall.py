"""`slurm-extender uninstall`: cleans up after an uninstalled extender, with the actions that the user
chooses.

The command uses the extender's settings, and waits until no replica leads. Running Pods continue, even
if the command ends their jobs."""

import asyncio
import sys
from dataclasses import dataclass
from enum import StrEnum

from extender.commands.systems import kubernetes_of, slurm_of
from extender.settings import Settings
from extender.uninstall.leftovers import Done, StillLeads, end_jobs, lift_gates, no_leader
from kubernetes_client.errors import KubernetesError, NoCredentials
from service.logging import configure_logging
from service.settings import from_environment
from slurm_client.errors import SlurmError


class Gates(StrEnum):
    """Choice for the gates of waiting Pods."""

    KEEP = "keep"
    LIFT = "lift"


class Jobs(StrEnum):
    """Choice for live jobs."""

    KEEP = "keep"
    END = "end"


@dataclass(frozen=True, slots=True)
class Choice:
    """Chosen actions, and the longest time, in seconds, to wait until no replica leads."""

    gates: Gates = Gates.KEEP
    jobs: Jobs = Jobs.KEEP
    timeout_s: float = 120.0


def run(choice: Choice) -> int:
    """Prints the result. Returns the exit status: 0 for success, 1 if an action failed for a Pod or
    a job, 2 if a system cannot be read or a replica leads."""
    settings = from_environment(Settings)
    configure_logging(settings.log_level)
    try:
        done = asyncio.run(_clean_up(settings, choice))
    except StillLeads as error:
        print(f"{error}: uninstall the extender first", file=sys.stderr)
        return 2
    except (SlurmError, KubernetesError, NoCredentials) as error:
        print(f"a system cannot be read: {error}", file=sys.stderr)
        return 2
    print(f"gates lifted: {done.lifted}; jobs ended: {done.ended}")
    for problem in done.problems:
        print(problem, file=sys.stderr)
    return 1 if done.problems else 0


async def _clean_up(settings: Settings, choice: Choice) -> Done:
    done = Done()
    async with slurm_of(settings) as slurm, kubernetes_of(settings) as kubernetes:
        await no_leader(kubernetes, settings.namespace, settings.lease_duration_s, choice.timeout_s)
        if choice.jobs is Jobs.END:
            rules = settings.placement_config(await kubernetes.cluster_uid())
            await end_jobs(slurm, rules, done)
        if choice.gates is Gates.LIFT:
            await lift_gates(kubernetes, settings.scheduler_name, done)
    return done
