"""Reads the facts for the checks of preflight, and changes nothing in Slurm or Kubernetes. If a request
fails, an `Unread` with the reason takes the place of the fact."""

import asyncio
import os
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Final, TypeVar

from extender.execution.release_check import releases
from extender.kube_scheduler.configuration import SchedulerConfiguration
from extender.policy.rules import Policy
from extender.preflight import rights, webhooks
from extender.preflight.device_plugins import device_plugins
from extender.preflight.facts import (
    API,
    RELEASE,
    TOKEN,
    Called,
    Facts,
    KubernetesFacts,
    SlurmFacts,
    Token,
    Unread,
    Webhook,
)
from extender.settings import Settings
from kubernetes_client.errors import KubernetesError
from kubernetes_client.protocol import Kubernetes, Manifest
from service.settings import unknown_variables
from slurm_client import tokens
from slurm_client.errors import BadToken, SlurmError
from slurm_client.job_state import AllStates
from slurm_client.protocol import Slurm
from slurm_client.server import Configuration
from wellknown.names import LEASE

Value = TypeVar("Value")

_ADMISSION: Final = "admissionregistration.k8s.io/v1"
_ROOT: Final = "root"


@dataclass(frozen=True, slots=True)
class Reader:
    """The reader of facts. `kubernetes` is Unread if there is no access to kube-apiserver."""

    settings: Settings
    kubernetes: Kubernetes | Unread
    slurm: Slurm
    policy: Policy
    scheduler: SchedulerConfiguration | Unread

    async def read(self, now: float) -> Facts:
        """Returns all facts. `now` is in UNIX seconds."""
        kubernetes, slurm = await asyncio.gather(self._of_kubernetes(), self._of_slurm())
        return Facts(
            settings=self.settings,
            kubernetes=kubernetes,
            slurm=slurm,
            scheduler=self.scheduler,
            variables=unknown_variables(Settings, os.environ),
            now=now,
            asked_partitions=_asked_partitions(self.settings, self.policy),
        )

    async def _of_kubernetes(self) -> KubernetesFacts:
        api, settings = self.kubernetes, self.settings
        if isinstance(api, Unread):
            return KubernetesFacts(*(api,) * len(fields(KubernetesFacts)))
        release = await _read(api.version(), RELEASE)
        if isinstance(release, Unread):
            return KubernetesFacts(release, *(release,) * (len(fields(KubernetesFacts)) - 1))
        return KubernetesFacts(
            release=release,
            account=await _read(api.account()),
            admission_kinds=await _read(api.kinds(_ADMISSION)),
            denied=await _read(api.denied(rights.of_extender(settings))),
            cannot_install=await _read(api.denied(rights.of_installation(settings))),
            nodes=await _read(_listed(api, "nodes")),
            device_plugins=await _read(device_plugins(api)),
            webhooks=await _read(_webhooks(api)),
            policies=await _read(_policies(api)),
            releases=await _read(releases(api)),
            lease=await _read(api.read_lease(settings.namespace, LEASE)),
        )

    async def _of_slurm(self) -> SlurmFacts:
        slurm, token = self.slurm, self._token()
        capabilities = await _read(slurm.connect(), API)
        accepted = await self._accepted()
        unread = accepted if isinstance(accepted, Unread) else None
        if accepted is False:
            unread = Unread("slurmctld rejects the token", TOKEN)
            if isinstance(capabilities, Unread):
                capabilities = replace(capabilities, because=TOKEN)
        if unread is not None:
            return SlurmFacts(capabilities, token, accepted, *(unread,) * 6)
        configuration = await _read(slurm.configuration())
        states = await _read(slurm.all_states())
        return SlurmFacts(
            capabilities=capabilities,
            token=token,
            accepted=accepted,
            privileged=await self._privileged(token, configuration),
            configuration=configuration,
            nodes=await _read(slurm.nodes()),
            partitions=await _read(slurm.partitions()),
            newest_job_id=states if isinstance(states, Unread) else self._newest_job_id(states),
            waiting_jobs=states if isinstance(states, Unread) else sum(states.waiting.values()),
        )

    def _token(self) -> Token | Unread:
        file = self.settings.slurm_token_file
        try:
            text = tokens.TokenFile(file).token()
        except BadToken as error:
            return Unread(str(error), TOKEN)
        if problem := tokens.problem(text):
            return Unread(f"the token in {file} {problem}", TOKEN)
        return Token(tokens.user(text), tokens.expiry(text))

    async def _accepted(self) -> bool | Unread:
        try:
            await self.slurm.ping()
        except BadToken:
            return False
        except SlurmError as error:
            return Unread(str(error), API)
        return True

    async def _privileged(
        self, token: Token | Unread, configuration: Configuration | Unread
    ) -> bool | Unread:
        """Returns True for a token of root or SlurmUser. If slurmrestd reports SlurmUser, compares
        SlurmUser with the name of the token's user. Otherwise, sends a test request for a job that Slurm
        never creates. Slurm's reply then shows the rights of the token."""
        if isinstance(token, Unread) or isinstance(configuration, Unread):
            return token if isinstance(token, Unread) else Unread(str(configuration))
        if configuration.slurm_user is not None:
            return token.user in (_ROOT, configuration.slurm_user)
        return await _read(self.slurm.may_choose_ids())

    def _newest_job_id(self, states: AllStates) -> int | None:
        """Returns the highest job id below the placeholders' range."""
        ids = self.settings.placeholder_ids
        return max((job_id for job_id in states if job_id < ids.first), default=None)


async def _read(answer: Awaitable[Value], check: str = "") -> Value | Unread:
    """Returns the answer, or Unread after an error. `check` is the name of the check that fails without
    the answer."""
    try:
        return await answer
    except KubernetesError as error:
        return Unread(f"cannot read kube-apiserver: {error}", check)
    except SlurmError as error:
        return Unread(f"cannot read Slurm: {error}", check)


async def _listed(api: Kubernetes, kind: str) -> tuple[Manifest, ...]:
    return tuple((await api.list(kind, None)).get("items") or ())


async def _webhooks(api: Kubernetes) -> Mapping[Webhook, Called]:
    found = {kind: await _listed(api, f"{kind}s") for kind in webhooks.CONFIGURATIONS}
    ours = [each for kind, listed in found.items() for each in webhooks.webhooks_of(kind, listed)]
    return await webhooks.called(ours, api)


async def _policies(api: Kubernetes) -> tuple[str, ...]:
    found = await _listed(api, "validatingadmissionpolicies")
    return tuple(str(each["metadata"]["name"]) for each in found)


def _asked_partitions(settings: Settings, policy: Policy) -> Mapping[str, str]:
    """Returns the partitions that the settings and the policy name, each with the setting or rule that
    names the partition. Omits patterns."""
    named: dict[str, str] = {}
    if settings.default_partition is not None:
        named[settings.default_partition] = "SLURM_EXTENDER_DEFAULT_PARTITION"
    for name, asked in settings.priority_classes.items():
        for part in filter(None, asked.get("partition", "").split(",")):
            named.setdefault(part, f"SLURM_EXTENDER_PRIORITY_CLASSES ({name})")
    for rule in policy.rules:
        choice = rule.fields.get("partition")
        given = () if choice is None else (*str(choice.default or "").split(","), *choice.allowed)
        for part in given:
            if part and not set("*?[") & set(part):
                named.setdefault(part, f"the policy's rule {rule.name}")
    return named
