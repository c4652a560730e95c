"""`slurm-extender uninstall` does what was chosen with what an uninstalled extender has left.

It waits until no replica leads. Pods that run go on, also those whose job it ends.
"""

import asyncio
import sys

from extender.commands.systems import kubernetes_of, slurm_of
from extender.control.shared_secret import known_secret
from extender.settings import Settings
from extender.uninstall.leftovers import Done, StillLeads, end_jobs, lift_gates, nobody_leads
from kubernetes_client.errors import KubernetesError, NoCredentials
from service.logging import configure_logging
from service.settings import from_environment
from slurm_client.errors import SlurmError


def run(within_s: float, *, lifts_gates: bool, ends_jobs: bool) -> int:
    """Waits for at most `within_s` seconds until no replica leads. Returns the exit status: 0; 1 where
    something is left; 2 where a system cannot be read, or a replica leads."""
    settings = from_environment(Settings)
    configure_logging(settings.log_level)
    try:
        done = asyncio.run(_clean_up(settings, within_s, lifts_gates, ends_jobs))
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


async def _clean_up(settings: Settings, within_s: float, lifts_gates: bool, ends_jobs: bool) -> Done:
    done = Done()
    async with kubernetes_of(settings) as kubernetes, slurm_of(settings) as slurm:
        await nobody_leads(kubernetes, settings.namespace, settings.lease_duration_s, within_s)
        if ends_jobs:  # before the gates: the jobs of Pods that still wait need not be
            secret = await known_secret(kubernetes, settings.namespace)
            rules = settings.placement_config(await kubernetes.cluster_uid(), secret=secret)
            await end_jobs(kubernetes, slurm, settings.translation, rules, done)
        if lifts_gates:
            await lift_gates(kubernetes, settings.scheduler_name, done)
    return done
