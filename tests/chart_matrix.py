"""Values of the chart for tests: each choice of the chart, alone and together with other choices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deploy.local.chart import Values


def merged(below: Values, above: Values) -> Values:
    """Merges values as Helm merges files: `above` overrides `below`."""

    def parts() -> Iterator[tuple[str, Any]]:
        for key in below.keys() | above.keys():
            one, other = below.get(key), above.get(key)
            if isinstance(one, dict) and isinstance(other, dict):
                yield key, merged(one, other)
            else:
                yield key, above.get(key, one)

    return dict(parts())


NEEDED: Values = {
    "slurm": {
        "restUrl": "http://slurmrestd.slurm:6820",
        "tokenSecret": {"name": "slurm-token"},
    }
}
"""Values that a user must set, because they have no default."""
POOLS: Values = {
    "pools": {
        "enabled": True,
        "controllers": ["slurmctld.slurm:6817"],
        "pools": [
            {
                "name": "gpu",
                "nodeSelector": {"pool": "gpu"},
                "template": {
                    "spec": {
                        "containers": [{"name": "slurmd", "image": "registry.example.com/slurmd:1"}]
                    }
                },
            }
        ],
    }
}
EXISTING: Values = {
    "scheduler": {
        "mode": "existing",
        "existing": {
            "url": "https://10.96.0.20:8888/scheduler",
            "clientCASecret": {"name": "kube-scheduler-ca"},
        },
    }
}
UNINSTALL: Values = {"uninstall": {"gates": "lift", "jobs": "end"}}
OUTSIDE: Values = {"extender": {"outside": {"enabled": True, "url": "https://10.0.0.11:8443"}}}
MATRIX: dict[str, Values] = {
    "defaults": {},
    "another name": {"fullnameOverride": "placer"},
    "namespaces": {"scheduler": {"scope": {"type": "namespace", "namespaces": ["team-a", "team-b"]}}},
    "namespaces as SUNK has them": {
        "scheduler": {"scope": {"type": "namespace", "namespaces": "team-a, team-b, team-a"}},
        "slurmKillWait": "60s",
    },
    "slurm-bridge's annotations": {
        "extender": {"settings": {"slurmBridgeAnnotations": True, "takeSchedulers": ["volcano", "b"]}}
    },
    "its own namespace": {"scheduler": {"scope": {"type": "namespace"}}},
    "labels": {
        "scheduler": {
            "podSelector": {
                "matchLabels": {"slurm": "yes"},
                "matchExpressions": [
                    {"key": "tier", "operator": "In", "values": ["gold", "silver"]},
                    {"key": "test", "operator": "DoesNotExist"},
                ],
            }
        }
    },
    "an existing kube-scheduler": EXISTING,
    "an existing kube-scheduler and Nodes by name": merged(
        EXISTING, {"extender": {"nodeNames": ["cp-1", "cp-2"]}}
    ),
    "an existing kube-scheduler by IPv6": merged(
        EXISTING, {"scheduler": {"existing": {"url": "https://[fd00::20]:8888/scheduler"}}}
    ),
    "cert-manager": {"webhooks": {"certificates": {"mode": "certManager"}}},
    "cert-manager for an existing kube-scheduler": {
        **EXISTING,
        "webhooks": {"certificates": {"mode": "certManager"}},
    },
    "cert-manager for an existing kube-scheduler by IPv6": merged(
        EXISTING,
        {
            "scheduler": {"existing": {"url": "https://[fd00::20]:8888/scheduler"}},
            "webhooks": {"certificates": {"mode": "certManager"}},
        },
    ),
    "cert-manager with an issuer": {
        "webhooks": {
            "certificates": {
                "mode": "certManager",
                "issuerRef": {"name": "corporate", "kind": "ClusterIssuer"},
            }
        }
    },
    "a certificate of one's own": {
        "webhooks": {
            "validatePods": True,
            "certificates": {
                "mode": "secret",
                "secretName": "webhooks-tls",
                "caBundle": "Y2E=",
                "clientCASecret": {"name": "kube-apiserver-ca"},
            },
        }
    },
    "pushes": {
        "hooks": {
            "enabled": True,
            "tokenSecret": {"name": "hooks-token"},
            "service": {"type": "LoadBalancer", "annotations": {"example.com/internal": "true"}},
            "hostPort": 8000,
        }
    },
    "pools": POOLS,
    "settings": {
        "extender": {
            "settings": {
                "sharedGpus": "node-agent",
                "jobIdFirst": 40_000_000,
                "TAINT_NODES": True,
                "TAKE_SCHEDULERS": "a, b",
                "drainTaints": ["example.com/maintenance", "example.com/broken"],
                "cpuUnit": 2,
                "pollIntervalS": 0.5,
                "listenAddress": "::",
            }
        },
        "nodeAgent": {"settings": {"keepOthersOffCores": True, "listenAddress": "::"}},
    },
    "no node agent": {"nodeAgent": {"enabled": False}},
    "a quota of critical Pods": {"criticalPodsQuota": {"enabled": True}},
    "NVIDIA": {
        "gpuTypes": {"nvidia.com/gpu": "gpu:h100", "nvidia.com/mig-1g.10gb": "gpu:1g.10gb"},
        "nodeAgent": {
            "runtimeClassName": "nvidia",
            "nri": False,
            "jobMapping": "/var/lib/dcgm-exporter/job-mapping",
            "nodeSelector": {"nvidia.com/gpu.present": "true"},
        },
    },
    "monitoring": {
        "monitoring": {
            name: {"enabled": True, "labels": {"release": "prometheus"}}
            for name in ("serviceMonitor", "podMonitor", "rules", "dashboards")
        }
    },
    "no NetworkPolicy": {"networkPolicy": {"enabled": False}},
    "addresses": {
        "networkPolicy": {
            "kubeApiServer": {"cidrs": ["10.0.0.0/24"], "ports": [6443]},
            "slurm": {"cidrs": ["10.1.0.5/32"]},
            "metrics": {
                "from": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
            },
        }
    },
    "TLS to slurmrestd": {
        "slurm": {"restUrl": "https://slurmrestd.example.com", "caSecret": {"name": "slurm-ca"}}
    },
    "a policy": {
        "policy": {
            "preset": "restricted",
            "rules": [
                {"name": "team-a", "namespaces": ["team-a"], "default": {"user": 2001, "account": "a"}}
            ],
        }
    },
    "places and limits": {
        "commonLabels": {"team": "platform"},
        "imagePullSecrets": [{"name": "registry"}],
        "extender": {
            "replicas": 3,
            "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
            "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
            "podAnnotations": {"example.com/a": "b"},
            "podLabels": {"example.com/c": "d"},
            "image": {"digest": "sha256:" + "0" * 64},
            "extraVolumes": [{"name": "more", "emptyDir": {}}],
            "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
        },
        "scheduler": {"featureGates": {"GenericWorkload": True}, "kubernetesVersion": "1.36.1"},
    },
    "gangs by default": {"extender": {"settings": {"gangsByDefault": True}}},
    "an uninstall that leaves nothing": UNINSTALL,
    "outside": OUTSIDE,
    "outside, all of it": {
        "extender": {"outside": {"enabled": True, "user": "slurm", "url": "https://10.0.0.11:8443"}},
        "scheduler": {"mode": "existing"},
        "webhooks": {"certificates": {"mode": "secret", "caBundle": "Y2E="}, "validatePods": True},
        "nodeAgent": {"outside": {"enabled": True, "users": ["node-agent"]}},
        "pools": {"enabled": True},
    },
}
"""Values, by the name of the choice that they make. `with_needed` adds the required values."""

REFUSED: dict[str, tuple[Values, str]] = {
    "an unknown value": ({"sheduler": {}}, "additional properties 'sheduler' not allowed"),
    "an unknown value inside": (
        {"scheduler": {"naem": "x"}},
        "additional properties 'naem' not allowed",
    ),
    "an unknown setting": (
        {"extender": {"settings": {"windows": 5}}},
        "additional properties 'windows' not allowed",
    ),
    "a setting that the chart makes": (
        {"extender": {"settings": {"healthPort": 1}}},
        "additional properties 'healthPort' not allowed",
    ),
    "a setting twice": ({"extender": {"settings": {"drainS": 1, "DRAIN_S": 2}}}, "'not' failed"),
    "everybody's scheduler": ({"scheduler": {"name": "default-scheduler"}}, "/scheduler/name"),
    "everybody's scheduler taken over": (
        {"extender": {"settings": {"TAKE_SCHEDULERS": "volcano, default-scheduler"}}},
        "extender.settings.takeSchedulers: default-scheduler cannot be taken over",
    ),
    "all namespaces, and some": (
        {"scheduler": {"scope": {"namespaces": ["team-a"]}}},
        "at '/scheduler/scope/namespaces': maxItems: got 1, want 0",
    ),
    "an existing kube-scheduler that shows nothing": (
        {"scheduler": {"mode": "existing"}},
        "at '/scheduler/existing/clientCASecret/name': minLength: got 0, want 1",
    ),
    "an existing kube-scheduler without TLS": (
        {"scheduler": {"mode": "existing", "existing": {"url": "http://10.0.0.1:8888/scheduler"}}},
        "at '/scheduler/existing/url'",
    ),
    "its own kube-scheduler, and another's address": (
        {"scheduler": {"existing": {"url": "https://10.0.0.1:8888/scheduler"}}},
        "at '/scheduler/existing/url': maxLength",
    ),
    "one's own certificate without a Secret": (
        {"webhooks": {"certificates": {"mode": "secret", "caBundle": "Y2E="}}},
        "at '/webhooks/certificates/secretName': minLength: got 0, want 1",
    ),
    "one's own certificate without its authority": (
        {"webhooks": {"certificates": {"mode": "secret", "secretName": "tls"}}},
        "at '/webhooks/certificates/caBundle': minLength: got 0, want 1",
    ),
    "an authority, and a certificate of ours": (
        {"webhooks": {"certificates": {"caBundle": "Y2E="}}},
        "at '/webhooks/certificates/caBundle': maxLength",
    ),
    "an issuer without cert-manager": (
        {"webhooks": {"certificates": {"issuerRef": {"name": "corporate"}}}},
        "at '/webhooks/certificates/issuerRef/name': maxLength",
    ),
    "cert-manager outside": (
        {**OUTSIDE, "webhooks": {"certificates": {"mode": "certManager"}}},
        "at '/webhooks/certificates/mode'",
    ),
    "outside without an address": (
        {"extender": {"outside": {"enabled": True}}},
        "at '/extender/outside/url': minLength: got 0, want 1",
    ),
    "pushes without a token": (
        {"hooks": {"enabled": True}},
        "at '/hooks/tokenSecret/name': minLength: got 0, want 1",
    ),
    "pools that are off": (
        {"pools": {"controllers": ["slurmctld:6817"]}},
        "at '/pools/controllers': maxItems: got 1, want 0",
    ),
    "pools without any": ({"pools": {"enabled": True}}, "at '/pools/controllers': minItems"),
    "pools without agents": ({**POOLS, "nodeAgent": {"enabled": False}}, "at '/nodeAgent/enabled'"),
    "pools that are not drained": (
        {**POOLS, "extender": {"settings": {"drainNodes": False}}},
        "at '/extender/settings/drainNodes'",
    ),
    "GPUs kept apart by agents that are not there": (
        {"nodeAgent": {"enabled": False}, "extender": {"settings": {"sharedGpus": "node-agent"}}},
        "at '/extender/settings/sharedGpus'",
    ),
    "agents outside, and none": (
        {"nodeAgent": {"enabled": False, "outside": {"enabled": True}}},
        "nodeAgent.outside.enabled: there are no node agents, since nodeAgent.enabled is false",
    ),
    "figures of agents that are not there": (
        {"nodeAgent": {"enabled": False}, "monitoring": {"podMonitor": {"enabled": True}}},
        "monitoring.podMonitor.enabled: there are no Pods of node agents",
    ),
    "figures of an extender that has no Service": (
        merged(OUTSIDE, {"monitoring": {"serviceMonitor": {"enabled": True}}}),
        "monitoring.serviceMonitor.enabled: an extender outside of the cluster has no Service",
    ),
    "an address of an extender that is not outside": (
        {"extender": {"outside": {"url": "https://10.0.0.11:8443"}}},
        "extender.outside.url: the extender runs in Pods",
    ),
    "an uninstall of an extender outside": (
        merged(OUTSIDE, UNINSTALL),
        "uninstall: an extender outside of the cluster has no Job for it; run `slurm-extender",
    ),
    "pushes to an extender outside": (
        merged(OUTSIDE, {"hooks": {"enabled": True, "tokenSecret": {"name": "hooks-token"}}}),
        "hooks.enabled: an extender outside of the cluster has this in its environment",
    ),
    "a token of pushes that are off": (
        {"hooks": {"tokenSecret": {"name": "hooks-token"}}},
        "hooks.tokenSecret.name: nothing is pushed, since hooks.enabled is false",
    ),
    "a port of pushes that are off": (
        {"hooks": {"hostPort": 8000}},
        "hooks.hostPort: nothing listens there, since hooks.enabled is false",
    ),
    "a Service of pushes that are off": (
        {"hooks": {"service": {"type": "NodePort"}}},
        "hooks.service: there is none, since hooks.enabled is false",
    ),
    "feature gates of an existing kube-scheduler": (
        merged(EXISTING, {"scheduler": {"featureGates": {"GenericWorkload": True}}}),
        "scheduler.featureGates: the kube-scheduler of scheduler.mode `existing` has its own",
    ),
    "an authority of a slurmrestd without TLS": (
        {"slurm": {"caSecret": {"name": "slurm-ca"}}},
        "slurm.caSecret.name: slurmrestd has no certificate, since slurm.restUrl is not https",
    ),
    "a check out of scope": (
        {
            "scheduler": {"scope": {"type": "namespace", "namespaces": ["team-a"]}},
            "check": {"namespace": "default"},
        },
        "check.namespace: default is not in scheduler.scope.namespaces (team-a)",
    ),
    "a policy with an unknown field": (
        {"policy": {"rules": [{"name": "a", "namespace": "b"}]}},
        "at '/policy/rules/0'",
    ),
    "a name that no Service may have": ({"fullnameOverride": "slurm.a"}, "at '/fullnameOverride'"),
    "labels by which Pods are found": (
        {"extender": {"podLabels": {"app.kubernetes.io/component": "a"}}},
        "invalid propertyName 'app.kubernetes.io/component'",
    ),
    "labels that the chart gives": (
        {"commonLabels": {"app.kubernetes.io/name": "a"}},
        "invalid propertyName 'app.kubernetes.io/name'",
    ),
    "no slurmrestd": ({"slurm": {"restUrl": ""}}, "slurm.restUrl: slurmrestd's address"),
    "no token": ({"slurm": {"tokenSecret": {"name": ""}}}, "slurm.tokenSecret.name: the Secret with"),
    "too short a KillWait": ({"slurmKillWait": 5}, "at '/slurmKillWait': minimum: got 5, want 7"),
}
"""Invalid values by the name of the mistake, each with a part of the error message."""


def with_needed(values: Values) -> Values:
    """Returns the values together with the required values in NEEDED."""
    return merged(NEEDED, values)
