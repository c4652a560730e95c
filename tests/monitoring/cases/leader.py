"""Alerts about the extender's replicas."""

from __future__ import annotations

from tests.monitoring.cases.case import Case, Series, replicas


def lifetime(what: str, ends: int, issued: int | None = 0) -> Series:
    """Of a token, or a certificate."""
    told = {f"slurm_extender_{what}_expiration_timestamp_seconds": f"{ends}x60"}
    if issued is not None:
        told[f"slurm_extender_{what}_issued_timestamp_seconds"] = f"{issued}x60"
    return told


CASES = (
    Case(
        "SlurmExtenderNoLeader",
        {'slurm_extender_leading{instance="a"}': "0x60", 'slurm_extender_leading{instance="b"}': "0x60"},
        {'slurm_extender_leading{instance="a"}': "0x60", 'slurm_extender_leading{instance="b"}': "1x60"},
    ),
    Case("SlurmExtenderNoLeader", {"up": "0x60"}, {"slurm_extender_leading": "0x18 1x42"}, alone=True),
    Case(
        "SlurmExtenderNoLeader",
        {"slurm_extender_leading": "1x5 _x55"},
        {'slurm_extender_leading{instance="a"}': "1x5 _x55"}
        | {'slurm_extender_leading{instance="b"}': "0x5 1x55"},
    ),
    Case(
        "SlurmExtenderLeaderFlapping",
        {"slurm_extender_lease_transitions_total": "1x5 3 5 7 9x60"},
        {"slurm_extender_lease_transitions_total": "1x5 3x60"},
    ),
    Case("SlurmExtenderTokenNearItsEnd", lifetime("token", 2400), lifetime("token", 36_000), "38m"),
    Case(
        "SlurmExtenderTokenNearItsEnd",
        lifetime("token", 80_000, issued=None),
        lifetime("token", 180_000, issued=None),
    ),
    Case(
        "SlurmExtenderCertificateNearItsEnd",
        lifetime("certificate", 2400),
        lifetime("certificate", 9000),
        "38m",
    ),
    Case(
        "SlurmExtenderFileRejected",
        {"slurm_extender_policy_good": "0x60", "slurm_extender_pools_good": "1x60"},
        {"slurm_extender_policy_good": "1x60", "slurm_extender_pools_good": "1x60"},
    ),
    Case(
        "SlurmExtenderComponentDegraded",
        replicas("watch of Pods", "1x60"),
        replicas("Slurm", "1x60") | replicas("nodes", "1x10 0x50"),
    ),
    Case(
        "SlurmExtenderComponentDegraded",
        replicas("Slurm's nodes", "1x60", "1x60", leads=0),
        replicas("Slurm's nodes", standby="1x60"),
    ),
    Case(
        "SlurmExtenderReplicaDegraded",
        replicas("Slurm", standby="1x60"),
        replicas("Slurm", "1x60", "1x60"),
    ),
    Case(
        "SlurmExtenderReplicaDegraded",
        replicas("Kubernetes", "0x60", "1x60"),
        replicas("Kubernetes", "1x60") | replicas("policy", standby="1x60"),
    ),
)
