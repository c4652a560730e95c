"""What is read of a Pod's versions."""

from __future__ import annotations

from typing import Any, cast

from extender.health import Health
from extender.kubernetes_api import KubernetesApi
from extender.placement.grace import GraceRule
from extender.placement.workload import Dialect
from extender.pod_watch import PodWatch
from tests.builders import PREFIX, Manifest, pod_manifest


def version(generation: int | None, **given: Any) -> Manifest:
    manifest = pod_manifest(uid="u1", **given)
    if generation is not None:
        manifest["metadata"]["generation"] = generation
    return manifest


def read(*versions: Manifest) -> list[int]:
    """The CPUs that the Pod asks for in each of its versions."""
    watch = PodWatch(cast(KubernetesApi, None), Dialect, Health())
    return [watch._parse(one).request.job.cpus for one in versions]


def test_what_a_pod_asks_for_is_read_once_a_generation() -> None:
    """The second cannot be: a spec does not change without its generation."""
    assert read(version(1, cpu="1"), version(1, cpu="2"), version(2, cpu="2")) == [1, 1, 2]


def test_a_changed_annotation_is_read_whatever_the_generation() -> None:
    watch = PodWatch(cast(KubernetesApi, None), Dialect, Health())
    for comment in ("first", "second"):
        annotated = version(1, annotations={PREFIX + "comment": comment})
        assert watch._parse(annotated).request.job.comment == comment


def test_without_generations_every_version_is_read() -> None:
    assert read(version(None, cpu="1"), version(None, cpu="2")) == [1, 2]


def test_a_pod_is_read_again_when_slurm_tells_another_kill_wait() -> None:
    dialects = iter((Dialect(), Dialect(), Dialect(grace=GraceRule(60)), Dialect(grace=GraceRule(60))))
    watch = PodWatch(cast(KubernetesApi, None), lambda: next(dialects), Health())
    slow = version(1, terminationGracePeriodSeconds=40)
    assert [bool(watch._parse(slow).request.problems) for _ in range(3)] == [True, False, False]
