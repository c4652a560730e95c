"""Cases for the alerts about the extender's replicas."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from tests.monitoring.cases.case import Case, Series, replicas


def lifetime(
    what: str, *lives: tuple[int, int], replica: str = "a", leads: int = 1, told: bool = True
) -> Series:
    """Returns the series of successive tokens or certificates. Each pair has a start and a lifetime, in
    minutes. The last token or certificate is never renewed."""
    ends, issued = "", ""
    for (since, lasts), until in pairwise((*lives, (180, 0))):
        times = until[0] - max(0, since) - 1
        ends += f"{60 * (since + lasts)}x{times} "
        issued += f"{60 * since}x{times} "
    of = f'{{instance="{replica}"}}'
    found = {
        f"slurm_extender_{what}_expiration_timestamp_seconds{of}": ends,
        f"slurm_extender_leading{of}": f"{leads}x180",
    }
    return found | ({f"slurm_extender_{what}_issued_timestamp_seconds{of}": issued} if told else {})


ENDING, LONG = (-2000, 2200), (-2000, 9000)
"""Two lifetimes, as start and duration in minutes. ENDING ends in about three hours."""
HOURLY = tuple((since, 60) for since in (-30, 27, 84, 141))
"""Lifetimes of an hour, each of which is renewed after 57 minutes."""
FORGOTTEN = HOURLY[:2]


def _of_lives(what: str, warning: str, page: str) -> Iterable[Case]:
    yield Case(warning, lifetime(what, (-2000, 2400)), lifetime(what, (-2000, 2700)))
    yield Case(page, lifetime(what, ENDING), lifetime(what, (-2000, 2400)))
    yield Case(page, lifetime(what, (-6, 70)), lifetime(what, (-6, 100)), "1h")
    for alert, minutes in ((page, 58), (warning, 63)):
        over = f"{FORGOTTEN[-1][0] + minutes}m"
        yield Case(alert, lifetime(what, *FORGOTTEN), lifetime(what, *HOURLY), over)
        in_time = f"{HOURLY[2][0] + 56}m"
        yield Case(alert, lifetime(what, ENDING), lifetime(what, *HOURLY), in_time)


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
    *(
        case
        for what, alert in (("token", "Token"), ("certificate", "Certificate"))
        for case in _of_lives(what, f"SlurmExtender{alert}NearItsEnd", f"SlurmExtender{alert}EndsSoon")
    ),
    Case(
        "SlurmExtenderTokenNearItsEnd",
        lifetime("token", (0, 1400), told=False),
        lifetime("token", (0, 3000), told=False),
    ),
    Case(  # a standby's kubelet does not deliver the new token
        "SlurmExtenderTokenEndsSoon",
        lifetime("token", ENDING),
        lifetime("token", LONG) | lifetime("token", ENDING, replica="b", leads=0),
    ),
    Case(
        "SlurmExtenderTokenEndsSoon",
        lifetime("token", ENDING, leads=0) | lifetime("token", ENDING, replica="b", leads=0),
        lifetime("token", ENDING, leads=0) | lifetime("token", LONG, replica="b", leads=0),
    ),
    Case(
        "SlurmExtenderTokenNearItsEnd",
        lifetime("token", LONG) | lifetime("token", ENDING, replica="b", leads=0),
        lifetime("token", LONG) | lifetime("token", LONG, replica="b", leads=0),
    ),
    Case(  # kube-apiserver calls the webhooks of all replicas
        "SlurmExtenderCertificateEndsSoon",
        lifetime("certificate", LONG) | lifetime("certificate", ENDING, replica="b", leads=0),
        lifetime("certificate", LONG) | lifetime("certificate", LONG, replica="b", leads=0),
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
