"""What kube-scheduler and the API server are told of an extender."""

import yaml

from deploy.local.rendering import render
from deploy.local.spec import EXTENDER_VERBS, ClusterSpec


def asked_by_kube_scheduler(spec: ClusterSpec) -> set[str]:
    rendered = render("kube-scheduler.yaml.j2", spec=spec, extender_port=1, kubeconfig="kubeconfig")
    (extender,) = yaml.safe_load(rendered)["extenders"]
    return {extender[key] for key in extender if key.endswith("Verb")}


def has_webhook(spec: ClusterSpec) -> bool:
    rendered = render("extender.yaml.j2", spec=spec, admission_port=1, ca_bundle="ca")
    return "MutatingWebhookConfiguration" in {each["kind"] for each in yaml.safe_load_all(rendered)}


def test_an_extender_is_asked_everything() -> None:
    assert asked_by_kube_scheduler(ClusterSpec()) == set(EXTENDER_VERBS) - {"mutate"}
    assert has_webhook(ClusterSpec())


def test_an_extender_that_answers_less_is_asked_less() -> None:
    spec = ClusterSpec(extender_verbs=("filter", "bind"))
    assert asked_by_kube_scheduler(spec) == {"filter", "bind"}
    assert not has_webhook(spec)
