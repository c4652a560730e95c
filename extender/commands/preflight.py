"""`slurm-extender preflight`: compares the settings with Slurm and Kubernetes, and reports problems."""

import asyncio
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from extender.commands.output import show
from extender.commands.systems import kubernetes_of, slurm_of
from extender.kube_scheduler import file as scheduler_file
from extender.kube_scheduler.configuration import SchedulerConfiguration
from extender.policy.current import CurrentPolicy
from extender.policy.rules import Policy
from extender.preflight.checks import results, status
from extender.preflight.facts import RELEASE, Facts, Unread
from extender.preflight.reader import Reader
from extender.settings import Settings
from kubernetes_client.errors import NoCredentials
from service.command_line import Output
from service.logging import configure_logging
from service.settings import from_environment
from service.yaml_file import WrongFile


@dataclass(frozen=True, slots=True)
class Places:
    """Addresses and files that override the settings. None keeps the setting."""

    slurmrestd: str | None = None
    token_file: Path | None = None
    kubeconfig: Path | None = None
    context: str | None = None
    scheduler_config: Path | None = None

    def settings(self) -> Settings:
        """Returns the settings with the overrides. Ends the program if a setting is invalid."""
        given = {
            "slurmrestd_url": self.slurmrestd,
            "slurm_token_file": self.token_file,
            "kubeconfig": self.kubeconfig,
        }
        return from_environment(
            Settings, **{name: value for name, value in given.items() if value is not None}
        )


def run(output: Output, places: Places) -> int:
    """Prints the outcome of each check. Returns the exit status: 0 if no check fails, 1 if a check
    fails, 2 if a setting or a file is invalid."""
    settings = places.settings()
    configure_logging(settings.log_level)
    try:
        policy = CurrentPolicy(settings.policy_file, settings.policy or "restricted").policy
        scheduler = _scheduler(places.scheduler_config, settings.scheduler_config_file)
    except (WrongFile, scheduler_file.NoConfiguration) as error:
        print(error, file=sys.stderr)
        return 2
    found = results(asyncio.run(_facts(settings, places.context, policy, scheduler)))
    show(found, output)
    return status(found)


def _scheduler(asked: Path | None, own: Path | None) -> SchedulerConfiguration | Unread:
    """Returns kube-scheduler's configuration from the file of the command line (`asked`), otherwise from
    the file of the settings (`own`). The file of the settings may be absent on this machine, so a
    problem with this file gives Unread. A problem with the file of the command line raises
    NoConfiguration."""
    if asked is not None:
        return scheduler_file.read(asked)
    if own is None:
        return Unread("kube-scheduler's configuration is not given")
    try:
        return scheduler_file.read(own)
    except scheduler_file.NoConfiguration as error:
        return Unread(str(error))


async def _facts(
    settings: Settings,
    context: str | None,
    policy: Policy,
    scheduler: SchedulerConfiguration | Unread,
) -> Facts:
    async with slurm_of(settings) as slurm:
        try:
            async with kubernetes_of(settings, context) as kubernetes:
                return await Reader(settings, kubernetes, slurm, policy, scheduler).read(time.time())
        except NoCredentials as error:
            unread = Unread(f"no access to kube-apiserver: {error}", RELEASE)
            return await Reader(settings, unread, slurm, policy, scheduler).read(time.time())
