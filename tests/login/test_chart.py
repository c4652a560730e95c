"""Tests of the login Pod's objects: kube-apiserver accepts the objects, and the chart's hook creates the
host keys only once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from deploy.local.spec import DEFAULT_RELEASE, ClusterSpec
from tests.login.chart import pod_of, rendered, template
from tests.login.images import files_of
from tests.login.pod import Given, Pod, decoded, ended

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

APPLY = (
    *("apply", "--server-side", "--field-manager=helm", "--dry-run=server"),
    *("--validate=strict", "-f", "-"),
)
SERVER = {"uris": ["ldaps://ldap.example.com"], "baseDn": "dc=example,dc=com"}
SECRETS: dict[str, Any] = {
    "bindDn": "cn=reader,dc=example,dc=com",
    "bindPasswordSecret": {"name": "reader"},
    "caSecret": {"name": "ca"},
    "clientCertificateSecret": "client",
}
EVERYTHING: dict[str, Any] = {
    "login": {
        "replicas": 2,
        "service": {
            "type": "LoadBalancer",
            "nodePort": 30022,
            "loadBalancerSourceRanges": ["192.0.2.0/24"],
        },
        "hostKeysSecret": "mine",
        "allowedGroups": ["domain users"],
        "limits": ["* hard nproc 4096"],
        "motd": 'Welcome: "all" of you\n',
        "sshd": {
            "options": {"MaxSessions": 20, "ListenAddress": ["0.0.0.0", "::"]},
            "match": [{"criteria": "Group staff", "options": {"PasswordAuthentication": False}}],
        },
        "priorityClassName": "system-node-critical",
        "sidecars": [{"name": "more", "image": "example.com/more:1"}],
        "initContainers": [{"name": "first", "image": "example.com/first:1"}],
        "volumes": [{"name": "scratch", "emptyDir": {}}],
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
        "env": [{"name": "TZ", "value": "UTC"}],
        "nodeSelector": {"login": "yes"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "podLabels": {"team": "hpc"},
        "podAnnotations": {"example.com/a": "b"},
    },
    "directory": {"preset": "openldap", **SERVER, **SECRETS},
    "volumes": [{"name": "home", "mountPath": "/home", "existingClaim": "homes"}],
}
MATRIX: dict[str, dict[str, Any]] = {
    "default": {},
    "off": {"login": {"enabled": False}},
    "everything": EVERYTHING,
    "users": {
        "directory": {
            "users": [{"name": "dave", "uid": 3001, "keys": ["ssh-ed25519 AAAA"]}],
            "groups": [{"name": "staff", "gid": 3100, "members": ["dave"]}],
        }
    },
    "config maps": {"directory": {"usersConfigMap": "ours", "userKeysConfigMap": "our-keys"}},
    **{
        preset: {"directory": {"preset": preset, **SERVER, **SECRETS}}
        for preset in ("openldap", "active-directory", "okta", "authentik", "google")
    },
}
REFUSED: dict[str, dict[str, Any]] = {
    "a preset that there is not": {"directory": {"preset": "nis"}},
    "a directory without a server": {"directory": {"preset": "openldap", "baseDn": "dc=a"}},
    "a directory without a base": {"directory": {"preset": "openldap", "uris": ["ldaps://a"]}},
    "google without a certificate": {"directory": {"preset": "google", **SERVER}},
    "a password among the options": {"directory": {"options": {"ldap_default_authtok": "x"}}},
    "an address that is no LDAP server's": {"directory": {"uris": ["http://a"]}},
    "a user's name with a colon": {"directory": {"users": [{"name": "a:b", "uid": 3001}]}},
    "a user with the number of root": {"directory": {"users": [{"name": "a", "uid": 0}]}},
    "a user with the number of SlurmUser": {"directory": {"users": [{"name": "a", "uid": 64030}]}},
    "a user with the name of SlurmUser": {"directory": {"users": [{"name": "slurm", "uid": 3001}]}},
    "a line break in an option of sssd": {"directory": {"options": {"a": "b\n[sssd]"}}},
    "a line break in an option of sshd": {
        "login": {"sshd": {"options": {"Banner": "none\nPermitRootLogin yes"}}}
    },
    "a group's name with a line break": {"login": {"allowedGroups": ["a\nb"]}},
    "a keyword of sshd with a space": {"login": {"sshd": {"options": {"Permit Root": "yes"}}}},
    "a line of limits that is none": {"login": {"limits": ["nproc 100"]}},
    "a value that there is not": {"login": {"replica": 2}},
}


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster.up(ClusterSpec(nodes=1, extender=False), tmp_path_factory.mktemp("kube")) as cluster:
        yield cluster


@pytest.mark.parametrize("case", MATRIX)
def test_kube_apiserver_takes_each_object_and_knows_each_field(kubernetes: Cluster, case: str) -> None:
    kubernetes.kubectl(*APPLY, stdin=template(MATRIX[case]))


@pytest.mark.parametrize("case", REFUSED)
def test_helm_rejects_invalid_values(case: str) -> None:
    with pytest.raises(ClusterError, match="values don't meet the specifications"):
        template(REFUSED[case])


def test_host_keys_are_created_once_with_minimal_rights(kubernetes: Cluster, tmp_path: Path) -> None:
    chart = rendered({})
    objects = [each for each in chart.manifests if each["metadata"]["name"] == "login-host-keys"]
    rights = [each for each in objects if each["kind"] != "Job"]
    kubernetes.kubectl(
        "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": rights})
    )
    given = Given(chart=chart, images={"login": files_of("login", DEFAULT_RELEASE)})
    made = [run_hook(kubernetes, given, tmp_path / str(number)) for number in (1, 2)]
    assert "made the Secret" in made[0][1]
    assert "is there, and stays" in made[1][1]
    assert made[0][0] == made[1][0]
    assert {
        f"ssh_host_{kind}_key{end}" for kind in ("ecdsa", "ed25519", "rsa") for end in ("", ".pub")
    } == {*made[0][0]}
    assert made[0][0]["ssh_host_ed25519_key"].startswith(b"-----BEGIN OPENSSH PRIVATE KEY-----")


def run_hook(kubernetes: Cluster, given: Given, folder: Path) -> tuple[dict[str, bytes], str]:
    """Runs the hook's Job with the token of the Job's own ServiceAccount. Returns the content of the
    Secret, and the Job's log."""
    pod = Pod(pod_of(given.chart, "Job", "login-host-keys"), given, folder)
    authority = kubernetes.kubectl("config", "view", "--raw", "--minify", "-o", "json").stdout
    account = {
        "token": kubernetes.kubectl("create", "token", "login-host-keys").stdout.strip().encode(),
        "namespace": b"default",
        "ca.crt": certificate_authority(json.loads(authority)),
    }
    pod.write("account", account)
    plan = pod.plan("host-keys")
    with ended(pod):
        pod.start("host-keys", env={**plan.env, "KUBERNETES_API": kubernetes.api_server_url})
        assert pod.wait("host-keys") == 0, pod.log("host-keys")
    secret = json.loads(kubernetes.kubectl("get", "secret", "login-host-keys", "-o", "json").stdout)
    return decoded(secret), pod.log("host-keys")


def certificate_authority(configuration: dict[str, Any]) -> bytes:
    """Returns the CA certificate of the cluster that a kubeconfig names."""
    path = configuration["clusters"][0]["cluster"]["certificate-authority"]
    return Path(path).read_bytes()
