"""The parts of a KubeSchedulerConfiguration that concern the extender, and the problems in these parts.
The code is pure.

DefaultPreemption evicts Pods of lower priority for a Pod that fits nowhere. Before an eviction,
DefaultPreemption asks only extenders with a `preemptVerb`, and does not ask /filter. If kube-scheduler
does not ask the extender, kube-scheduler evicts Pods for a Pod that Slurm has not admitted. This happens
again for each Node that /filter closes. For PodGroups (1.37), kube-scheduler does not ask the
`preemptVerb`, but first asks /filter for each member. Sources: k8s.io/kubernetes pkg/scheduler, 1.31 and
1.37: framework/preemption (callExtenders), extender.go, apis/config/v1/default_plugins.go
(mergePluginSet), framework/runtime (expandMultiPointPlugins)."""

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic.alias_generators import to_camel

PREEMPTION = "DefaultPreemption"
HTTP_TIMEOUT_S: Final = 5.0
"""Seconds until kube-scheduler cancels a call, by the default of `httpTimeout`. The verbs answer earlier
(`deadline`)."""
BIND_TIMEOUT_S: Final = 30.0
"""The same for /bind, which the chart gives an entry of its own. The calls for the members of a gang
wait for each other (`gang_barrier`)."""
_PATH = "/scheduler"
"""The path of the extender's verbs, at the end of `urlPrefix`."""
_EVERYTHING = "*"
_VERBS = {"filter_verb": "filter", "bind_verb": "bind", "preempt_verb": "preempt"}
"""The verbs that the extender's entries must have together. The key is the field of `ExtenderEntry` with
the verb's name."""
_DURATION: Final = re.compile(r"([0-9.]+)(ms|s|m|h)", re.ASCII)
_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def _seconds(given: object) -> object:
    """Returns the seconds of a duration in Go's form, for example "5s" or "1m30s". 0 and null mean the
    default."""
    if not isinstance(given, str):
        return given or HTTP_TIMEOUT_S
    parts = _DURATION.findall(given)
    return sum(float(number) * _UNITS_S[unit] for number, unit in parts) or HTTP_TIMEOUT_S


def _absent(given: object) -> object:
    """Returns {} for null, because kube-scheduler treats an empty `plugins:` in YAML as absent."""
    return {} if given is None else given


class _Part(BaseModel):
    """A part of the file with the fields needed here. kube-scheduler rejects files with unknown
    fields."""

    model_config = ConfigDict(alias_generator=to_camel, frozen=True)


class _Plugin(_Part):
    name: str


class _PluginSet(_Part):
    enabled: Sequence[_Plugin] | None = None
    disabled: Sequence[_Plugin] | None = None

    def enables(self, plugin: str) -> bool:
        return any(each.name == plugin for each in self.enabled or ())

    def disables(self, plugin: str) -> bool:
        """Returns True if a plugin is disabled by its name, or together with all plugins (`*`)."""
        return any(each.name in (plugin, _EVERYTHING) for each in self.disabled or ())


PluginSet = Annotated[_PluginSet, BeforeValidator(_absent)]


class _Plugins(_Part):
    multi_point: PluginSet = _PluginSet()
    post_filter: PluginSet = _PluginSet()


class Profile(_Part):
    """A profile: the scheduling of Pods with the same `schedulerName`."""

    scheduler_name: str = "default-scheduler"
    percentage_of_nodes_to_score: int | None = None
    plugins: Annotated[_Plugins, BeforeValidator(_absent)] = _Plugins()

    @property
    def preempts(self) -> bool:
        """True if DefaultPreemption runs for single Pods."""
        multi_point, post_filter = self.plugins.multi_point, self.plugins.post_filter
        if post_filter.enables(PREEMPTION):
            return True
        everywhere = multi_point.enables(PREEMPTION) or not multi_point.disables(PREEMPTION)
        return everywhere and not post_filter.disables(PREEMPTION)


class _Resource(_Part):
    name: str


class ExtenderEntry(_Part):
    """An entry of `extenders`."""

    url_prefix: str = ""
    filter_verb: str | None = None
    bind_verb: str | None = None
    preempt_verb: str | None = None
    node_cache_capable: bool = False
    http_timeout: Annotated[float, BeforeValidator(_seconds)] = HTTP_TIMEOUT_S
    ignorable: bool = False
    managed_resources: Sequence[_Resource] | None = None

    @property
    def own(self) -> bool:
        """True if the entry is slurm-extender's. The path of the verbs shows this."""
        return urlsplit(self.url_prefix).path.rstrip("/") == _PATH


class SchedulerConfiguration(_Part):
    """The parts of a KubeSchedulerConfiguration that concern the extender."""

    percentage_of_nodes_to_score: int | None = None
    profiles: Sequence[Profile] | None = None
    extenders: Sequence[ExtenderEntry] | None = None

    def profile(self, scheduler_name: str) -> Profile | None:
        """Returns the profile of a `schedulerName`. A file without profiles has the default
        profile."""
        found = self.profiles or (Profile(),)
        return next((each for each in found if each.scheduler_name == scheduler_name), None)

    @property
    def own_entries(self) -> tuple[ExtenderEntry, ...]:
        """slurm-extender's entries; empty if kube-scheduler does not ask slurm-extender."""
        return tuple(each for each in self.extenders or () if each.own)


def unsafe_preemption(configuration: SchedulerConfiguration, scheduler_name: str) -> str | None:
    """Returns the reason why kube-scheduler would evict Pods for a Pod that Slurm has not admitted.
    Returns None if kube-scheduler would not."""
    profile, entries = configuration.profile(scheduler_name), configuration.own_entries
    if profile is None or not profile.preempts:
        return None
    on = f"{PREEMPTION} is on in the profile {scheduler_name}, and"
    if not entries:
        return f"{on} no entry of `extenders` is slurm-extender's (urlPrefix must end in {_PATH})"
    entry = next((each for each in entries if each.preempt_verb), None)
    if entry is None:
        return f"{on} slurm-extender's entry has no preemptVerb"
    if entry.ignorable:
        return f"{on} slurm-extender's entry is `ignorable`: kube-scheduler skips it while it is down"
    if entry.managed_resources:
        names = ", ".join(each.name for each in entry.managed_resources)
        return f"{on} kube-scheduler asks slurm-extender only about Pods with {names} (managedResources)"
    return None


def problems(configuration: SchedulerConfiguration, scheduler_name: str) -> tuple[str, ...]:
    """Returns the other problems of kube-scheduler's calls to the extender, as messages."""
    return tuple(_problems(configuration, scheduler_name))


def _problems(configuration: SchedulerConfiguration, scheduler_name: str) -> Iterator[str]:
    profile, entries = configuration.profile(scheduler_name), configuration.own_entries
    if profile is None:
        yield f"profile {scheduler_name} is missing"
    elif (share := _share(configuration, profile)) != 100:
        seen = "/filter sees a part of the Nodes"
        yield f"percentageOfNodesToScore is {share or 'not set'}, not 100: {seen}"
    if not entries:
        yield f"no entry of `extenders` is slurm-extender's (urlPrefix must end in {_PATH})"
        return
    missing = [
        f"{verb}Verb"
        for field, verb in _VERBS.items()
        if not any(getattr(entry, field) for entry in entries)
    ]
    if missing and not _may_lack(missing, profile):
        yield f"slurm-extender's entry has no {' and no '.join(missing)}"
    for entry in entries:
        yield from _entry_problems(entry)


def _entry_problems(entry: ExtenderEntry) -> Iterator[str]:
    if not entry.node_cache_capable:
        yield "slurm-extender's entry lacks `nodeCacheCapable: true`"
    least = BIND_TIMEOUT_S if entry.bind_verb else HTTP_TIMEOUT_S
    if entry.http_timeout < least:
        words = f"slurm-extender's entry has httpTimeout {entry.http_timeout:g}s, less than {least:g}s"
        beside = " with bindVerb" if entry.bind_verb else ""
        yield f"{words}{beside}: kube-scheduler cancels calls before the answer"
    if entry.ignorable:
        yield "slurm-extender's entry is `ignorable`: while it is down Pods pass without Slurm"
    if entry.managed_resources:
        yield "slurm-extender's entry has `managedResources`: kube-scheduler skips it for other Pods"


def _share(configuration: SchedulerConfiguration, profile: Profile) -> int | None:
    own = profile.percentage_of_nodes_to_score
    return configuration.percentage_of_nodes_to_score if own is None else own


def _may_lack(missing: Sequence[str], profile: Profile | None) -> bool:
    """Returns True if only preemptVerb is missing and DefaultPreemption is off, because kube-scheduler
    then evicts no Pods."""
    return list(missing) == ["preemptVerb"] and profile is not None and not profile.preempts
