"""What kube-scheduler and the API server are told of an extender."""

import yaml

from deploy.local.rendering import render
from deploy.local.spec import EXTENDER_VERBS, ClusterSpec


def asked_by_kube_scheduler(spec: ClusterSpec) -> set[str]:
    rendered = render("kube-scheduler.yaml.j2", spec=spec, extender_port=1, kubeconfig="kubeconfig")
    (extender,) = yaml.safe_load(rendered)["extenders"]
    return {extender[key] for key in extender if key.endswith("Verb")}


def webhooks(spec: ClusterSpec) -> set[str]:
    """The verbs that the API server asks."""
    rendered = render("extender.yaml.j2", spec=spec, admission_port=1, ca_bundle="ca")
    asked = (each.get("webhooks", ()) for each in yaml.safe_load_all(rendered))
    return {hook["clientConfig"]["url"].split("/")[3] for hooks in asked for hook in hooks}


def test_an_extender_is_asked_everything() -> None:
    assert webhooks(ClusterSpec()) == {"mutate", "validate"}
    assert asked_by_kube_scheduler(ClusterSpec()) == set(EXTENDER_VERBS) - {"mutate", "validate"}


def test_an_extender_that_answers_less_is_asked_less() -> None:
    spec = ClusterSpec(extender_verbs=("filter", "bind"))
    assert asked_by_kube_scheduler(spec) == {"filter", "bind"}
    assert not webhooks(spec)
