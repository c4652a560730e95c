"""`slurm-extender-uninstall` does what was chosen with what an uninstalled extender has left.

It uses the extender's own settings, and waits until no replica leads. Pods that run go on, also those
whose job it ends. Exit status: 0; 1 where something is left; 2 where a system cannot be read, or a
replica leads.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence

from extender.control.shared_secret import known_secret
from extender.settings import Settings
from extender.uninstall.leftovers import Done, StillLeads, end_jobs, lift_gates, nobody_leads
from kubernetes_client.errors import KubernetesError, NoCredentials
from kubernetes_client.rest import KubernetesRest
from service.logging import configure_logging
from service.settings import from_environment
from slurm_client.errors import SlurmError
from slurm_client.rest import SlurmRest


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    given = _parser().parse_args(arguments)
    settings = from_environment(Settings)
    configure_logging(settings.log_level)
    try:
        done = asyncio.run(_clean_up(settings, given))
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slurm-extender-uninstall",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = "Pods that wait: whether they keep the extender's gate, or may be scheduled without Slurm"
    parser.add_argument("--gates", choices=("keep", "lift"), default="keep", help=what)
    what = "live jobs of the extender's: whether they stay in Slurm or are cancelled"
    parser.add_argument("--jobs", choices=("keep", "end"), default="keep", help=what)
    what = "how long a replica may go on leading (default: %(default)s)"
    parser.add_argument("--timeout", type=float, default=120.0, metavar="SECONDS", help=what)
    return parser


async def _clean_up(settings: Settings, given: argparse.Namespace) -> Done:
    kubernetes, done = await KubernetesRest.connect(settings.kubeconfig), Done()
    slurm = SlurmRest(
        settings.slurmrestd_url, settings.slurm_token_file, timeout_s=settings.slurm_timeout_s
    )
    try:
        await nobody_leads(kubernetes, settings.namespace, settings.lease_duration_s, given.timeout)
        if given.jobs == "end":  # before the gates: the jobs of Pods that still wait need not be
            secret = await known_secret(kubernetes, settings.namespace)
            rules = settings.placement_config(await kubernetes.cluster_uid(), secret=secret)
            await end_jobs(kubernetes, slurm, settings.translation, rules, done)
        if given.gates == "lift":
            await lift_gates(kubernetes, settings.scheduler_name, done)
    finally:
        await slurm.aclose()
        await kubernetes.aclose()
    return done


if __name__ == "__main__":
    sys.exit(main())
