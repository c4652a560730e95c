"""Values with which the tests render the chart: each choice of the chart, alone and in combinations."""

from __future__ import annotations

from deploy.local.chart import Values

BACKUP: Values = {"slurmctld": {"replicas": 2, "persistence": {"accessModes": ["ReadWriteMany"]}}}
OWN_DATABASE: Values = {
    "accounting": {
        "database": {
            "host": "db.example.com",
            "port": 3307,
            "passwordSecret": {"name": "database", "key": "slurm"},
        },
        "mariadb": {"enabled": False},
    }
}
HOOKS: Values = {
    "slurmd": {"namespaces": ["slurm-nodes"]},
    "slurmExtender": {
        "namespace": "slurm-extender",
        "hooks": {
            "urls": ["http://slurm-extender-hooks.slurm-extender.svc:8000"],
            "tokenSecret": {"name": "hooks-token"},
        },
    },
}
SCRIPT = "#!/bin/sh\nexit 0\n"
SCRIPTS: Values = {
    "config": {
        "scripts": {
            "prolog": {"10-mounts": SCRIPT},
            "epilog": {"10-clean": SCRIPT, "20-health": SCRIPT},
            "prologSlurmctld": {"on-start": SCRIPT},
            "epilogSlurmctld": {"on-end": SCRIPT},
        },
        "jobSubmitLua": "function slurm_job_submit(job, part, uid) return slurm.SUCCESS end\n"
        "function slurm_job_modify(job, rec, part, uid) return slurm.SUCCESS end\n",
        "files": {"mpi.conf": "PMIxDebug=0\n"},
    }
}
CONFIG: Values = {
    "clusterName": "research",
    "config": {
        "slurm": {
            "KillWait": 44,
            "MaxJobCount": 100000,
            "DefMemPerCPU": None,
            "PriorityType": "priority/multifactor",
            "PreemptType": "preempt/qos",
            "PreemptMode": "REQUEUE",
            "GresTypes": ["gpu", "shard"],
            "SlurmctldParameters": ["enable_configless", "conmgr_threads=2"],
        },
        "cgroup": {"ConstrainSwapSpace": False},
        "gres": ["NodeName=gpu-[001-004] Name=gpu Type=h100 File=/dev/nvidia[0-7]"],
        "nodes": [
            {
                "name": "gpu-[001-004]",
                "NodeAddr": "10.99.0.9",
                "CPUs": 8,
                "RealMemory": 16000,
                "Gres": "gpu:h100:8",
                "Reason": "a new one",
            }
        ],
        "nodeSets": [{"name": "fast", "Feature": "fast"}],
        "partitions": [
            {"name": "gpu", "Nodes": ["gpu-[001-004]", "fast"], "Default": True, "MaxTime": "1-0"},
            {"name": "cpu", "Nodes": "fast", "State": "UP"},
        ],
    },
}
TOPOLOGY_YAML = """\
- topology: default
  cluster_default: true
  tree:
    switches:
    - switch: root
      children: leaf
    - switch: leaf
      nodes: gpu-[001-004]
"""
WHOLE: Values = {
    "commonLabels": {"team": "platform"},
    "images": {
        "registry": "registry.example.com/slurm",
        "tag": "1",
        "pullSecrets": [{"name": "registry"}],
        "references": {"slurmctld": "example.com/slurmctld@sha256:" + "0" * 64},
    },
    **BACKUP,
}
_PLACE: Values = {
    "nodeSelector": {"pool": "system"},
    "tolerations": [{"key": "system", "operator": "Exists"}],
    "podLabels": {"a": "b"},
    "podAnnotations": {"c": "d"},
}
_MORE: Values = {
    **_PLACE,
    "sidecars": [{"name": "logs", "image": "example.com/logs:1"}],
    "initContainers": [{"name": "before", "image": "example.com/before:1"}],
    "volumes": [{"name": "more", "emptyDir": {}}],
    "volumeMounts": [{"name": "more", "mountPath": "/more"}],
    "env": [{"name": "TZ", "value": "UTC"}],
}
TREE: Values = {"topology": {"kind": "tree", "tiers": ["example.com/block", "example.com/rack"]}}
MATRIX: dict[str, Values] = {
    "defaults": {},
    "another prefix": {"namePrefix": "research-"},
    "a backup controller": BACKUP,
    "a volume of one's own": {
        "slurmctld": {"replicas": 2, "persistence": {"existingClaim": "shared"}},
        "accounting": {
            "mariadb": {
                "persistence": {"existingClaim": "database"},
                "backup": {"existingClaim": "dumps"},
            }
        },
    },
    "a storage class": {
        "slurmctld": {"persistence": {"storageClass": "fast", "size": "1Gi"}},
        "accounting": {
            "mariadb": {"persistence": {"storageClass": "fast"}, "backup": {"enabled": False}}
        },
    },
    "no accounting": {"accounting": {"enabled": False}},
    "no accounting, 24.11": {"slurmRelease": "24.11", "accounting": {"enabled": False}},
    "24.11": {"slurmRelease": "24.11"},
    "one's own database": OWN_DATABASE,
    "one's own keys": {"keys": {"slurmKeySecret": "key", "jwtKeySecret": "jwt"}},
    "one's own keys and database": {
        "keys": {"slurmKeySecret": "key", "jwtKeySecret": "jwt"},
        **OWN_DATABASE,
    },
    "slurm-extender elsewhere": {
        "slurmExtender": {"namespace": "slurm-extender"},
        "slurmd": {"namespaces": ["slurm-nodes"]},
    },
    "pushes": HOOKS,
    "no token": {"slurmExtender": {"token": {"enabled": False}, "gate": False}},
    "a configuration": CONFIG,
    "scripts": SCRIPTS,
    "topology.yaml": {"config": {**CONFIG["config"], "topology": TOPOLOGY_YAML}},
    "a topology from labels": TREE,
    "a topology from labels, 24.11": {"slurmRelease": "24.11", **TREE},
    "accounts": {
        "accounts": {
            "qos": [{"name": "high", "priority": 100}],
            "accounts": [{"name": "research"}],
            "users": [{"name": "alice", "accounts": [{"name": "research"}]}],
        }
    },
    "volumes": {
        "volumes": [
            {"name": "home", "mountPath": "/home", "size": "1Ti", "storageClass": "nfs"},
            {"name": "data", "mountPath": "/data", "existingClaim": "data"},
            {"name": "sets", "mountPath": "/sets", "source": {"nfs": {"server": "n", "path": "/sets"}}},
        ]
    },
    "peers": {
        "networkPolicy": {
            "kubeApiServer": {"ports": [6443]},
            "slurmctld": {"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},
            "slurmrestd": {"from": [{"namespaceSelector": {"matchLabels": {"name": "slurm-extender"}}}]},
        }
    },
    "no NetworkPolicy": {"networkPolicy": {"enabled": False}},
    "a quota of critical Pods": {"criticalPodsQuota": {"enabled": True}},
    "metrics": {"monitoring": {"serviceMonitor": {"enabled": True, "labels": {"release": "p"}}}},
    "no check": {"check": {"enabled": False}},
    "no priority": {"priorityClassName": ""},
    "images, and two slurmctlds": WHOLE,
    "more of each Pod": {
        "slurmctld": {**_MORE, "args": ["-i"], "service": {"type": "LoadBalancer"}},
        "slurmrestd": {**_MORE, "replicas": 1, "args": ["-v"], "service": {"type": "NodePort"}},
        "accounting": {"slurmdbd": _MORE, "mariadb": _PLACE},
        "topology": {**TREE["topology"], **_PLACE},
    },
}
"""Valid values. The name of each entry says what the values choose."""

REFUSED: dict[str, tuple[Values, str]] = {
    "an unknown value": ({"slurmctl": {}}, "additional properties 'slurmctl' not allowed"),
    "an unknown value inside": (
        {"slurmctld": {"replica": 2}},
        "additional properties 'replica' not allowed",
    ),
    "two slurmctlds on a volume of one": (
        {"slurmctld": {"replicas": 2}},
        "slurmctld.persistence.accessModes: two slurmctlds have one volume: it has to be ReadWriteMany",
    ),
    "three slurmctlds": ({"slurmctld": {"replicas": 3}}, "at '/slurmctld/replicas': maximum"),
    "a parameter that the chart makes": (
        {"config": {"slurm": {"AuthType": "auth/munge"}}},
        "config.slurm.AuthType: the chart makes it of other values",
    ),
    "a parameter twice": ({"config": {"slurm": {"killwait": 30}}}, "KillWait"),
    "a parameter that is none": (
        {"config": {"slurm": {"Kill Wait": 30}}},
        "'Kill Wait' does not match pattern",
    ),
    "a line in a parameter": (
        {"config": {"slurm": {"MailProg": "/bin/true\nSlurmUser=root"}}},
        "at '/config/slurm/MailProg'",
    ),
    "a partition without a name": (
        {"config": {"partitions": [{"Nodes": "ALL"}]}},
        "missing property 'name'",
    ),
    "a script that is none": (
        {"config": {"scripts": {"prolog": {"a": "exit 0"}}}},
        "at '/config/scripts/prolog/a'",
    ),
    "two files of one name": (
        {"config": {"scripts": {"prolog": {"a": SCRIPT}, "epilog": {"a": SCRIPT}}}},
        "config: there are two files a",
    ),
    "a file that the chart makes": (
        {"config": {"files": {"slurm.conf": ""}}},
        "invalid propertyName 'slurm.conf'",
    ),
    "two databases": (
        {"accounting": {"database": {"host": "db"}}},
        "accounting.database.host: accounting.mariadb.enabled is true",
    ),
    "no database": (
        {"accounting": {"mariadb": {"enabled": False}}},
        "accounting.database.host: the host of your database",
    ),
    "a database without a password": (
        {"accounting": {"mariadb": {"enabled": False}, "database": {"host": "db"}}},
        "accounting.database.passwordSecret.name: the Secret with the password",
    ),
    "accounts without accounting": (
        {"accounting": {"enabled": False}, "accounts": {"accounts": [{"name": "a"}]}},
        "accounts: there is no slurmdbd that could keep them",
    ),
    "pushes without a token": (
        {"slurmExtender": {"hooks": {"urls": ["http://a:8000"]}}},
        "slurmExtender.hooks.tokenSecret.name: the Secret with the extenders' hooks token",
    ),
    "topology.yaml of 24.11": (
        {"slurmRelease": "24.11", "config": {"topology": TOPOLOGY_YAML}},
        "config.topology: Slurm has topology.yaml since 25.05",
    ),
    "two topologies": (
        {**TREE, "config": {"topology": TOPOLOGY_YAML}},
        "config.topology, topology.kind: it is one or the other",
    ),
    "metrics of an old release": (
        {"slurmRelease": "25.05", "monitoring": {"serviceMonitor": {"enabled": True}}},
        "monitoring.serviceMonitor: Slurm has metrics since 25.11",
    ),
    "a topology of nothing": ({"topology": {"kind": "tree"}}, "topology.kind: tree needs"),
    "a QOS with a flag that sacctmgr forgets": (
        {"accounts": {"qos": [{"name": "high", "flags": ["Fast"]}]}},
        "at '/accounts/qos/0/flags/0'",
    ),
    "a claim for login that is nobody's": (
        {"volumes": [{"name": "a", "mountPath": "/a", "size": "1Gi"}], "login": {"enabled": False}},
        "volumes, a: login Pods alone have a claim of the chart's, and login.enabled is false",
    ),
    "a volume of two kinds": (
        {"volumes": [{"name": "a", "mountPath": "/a", "size": "1Gi", "existingClaim": "b"}]},
        "at '/volumes/0': 'oneOf' failed",
    ),
    "a release of Slurm that is too old": ({"slurmRelease": "23.11"}, "at '/slurmRelease'"),
    "labels by which Pods are found": (
        {"slurmctld": {"podLabels": {"app.kubernetes.io/component": "a"}}},
        "invalid propertyName 'app.kubernetes.io/component'",
    ),
    "labels that the chart gives": (
        {"commonLabels": {"app.kubernetes.io/name": "a"}},
        "invalid propertyName 'app.kubernetes.io/name'",
    ),
    "two users of one number": (
        {"directory": {"users": [{"name": "a", "uid": 3001}, {"name": "b", "uid": 3001}]}},
        "directory.users: two have the uid 3001",
    ),
    "a schedule that is none": (
        {"accounting": {"mariadb": {"backup": {"schedule": "daily"}}}},
        "at '/accounting/mariadb/backup/schedule'",
    ),
}
"""Invalid values, each with a part of Helm's error message."""


def merged(below: Values, above: Values) -> Values:
    """Returns both values, merged as Helm merges files. `above` overrides `below`."""
    both = dict(below) | dict(above)
    for key in below.keys() & above.keys():
        if isinstance(below[key], dict) and isinstance(above[key], dict):
            both[key] = merged(below[key], above[key])
    return both
