"""Alerts about the extender's replicas: their leader, what they hold, and their components."""

from typing import Final

from deploy.monitoring.lifetimes import DAYS, HOURS, NearItsEnd, left, unless_renewed_so_late
from deploy.monitoring.releases import by
from deploy.monitoring.replicas import LEADING, degraded, of_leader_or_all, of_standby_alone
from deploy.monitoring.rule import Alert, Group, Severity, labelled

_GONE_WITHIN: Final = "1d"
"""For so long a release that was there is missed."""
_FILES: Final = ("policy", "pools' file")
"""The components of whose trouble any replica tells."""
_HAVE_ALERTS: Final = (
    "Slurm",
    "Slurm's token",
    "Kubernetes",
    "job ids",
    "AdminComment",
    "SelectTypeParameters",
    "preemption",
    "eviction limiter",
    *_FILES,
)
"""The components that have an alert of their own."""


def _near_its_end(near: NearItsEnd, what: str) -> str:
    """Returns the expression for what any replica has."""
    return unless_renewed_so_late(f"min {by()} ({near.of(what)})", what)


LEADER: Final = Group(
    "slurm-extender-leader",
    (
        Alert(
            "SlurmExtenderNoLeader",
            f"sum {by()} ({LEADING}) < 1"
            f" or (count {by()} (last_over_time({LEADING}[{_GONE_WITHIN}]))"
            f" unless count {by()} ({LEADING}))"
            f" or absent_over_time({LEADING}[{_GONE_WITHIN}])",
            "2m",
            Severity.CRITICAL,
            "No replica of the extender leads: no Pod of Slurm's is placed",
            "No replica answers Prometheus, or none holds the Lease and has read both systems. What runs"
            " goes on; where no replica is up at all, Pods that ask for Slurm are rejected.",
        ),
        Alert(
            "SlurmExtenderLeaderFlapping",
            f"max {by()} (increase(slurm_extender_lease_transitions_total[30m])) > 4",
            "0m",
            Severity.WARNING,
            "The extender's leader has changed {{ $value | humanize }} times in half an hour",
            "Replicas end, or cannot renew the Lease in time. Each new leader reads both systems first.",
        ),
        left("token"),
        left("certificate"),
        Alert(
            "SlurmExtenderTokenNearItsEnd",
            _near_its_end(DAYS, "token"),
            "5m",
            Severity.WARNING,
            "Slurm's token ends in {{ $value | humanizeDuration }}",
            "Nobody has rotated it in four fifths of its life, or a replica does not get the new one."
            " When it is over Slurm rejects every call.",
        ),
        Alert(
            "SlurmExtenderTokenEndsSoon",
            unless_renewed_so_late(of_leader_or_all(HOURS.of("token")), "token"),
            "1m",
            Severity.CRITICAL,
            "Slurm's token ends in {{ $value | humanizeDuration }}: then no Pod gets a job",
            "It is the token of the leader, or of all replicas. When it is over Slurm rejects every"
            " call. Mint another, and put it into the Secret: no restart is needed.",
        ),
        Alert(
            "SlurmExtenderCertificateNearItsEnd",
            _near_its_end(DAYS, "certificate"),
            "5m",
            Severity.WARNING,
            "The webhooks' certificate ends in {{ $value | humanizeDuration }}",
            "Nobody has renewed it in four fifths of its life, or a replica does not get the new one."
            " When it is over kube-apiserver rejects every Pod that asks for Slurm.",
        ),
        Alert(  # of any replica: kube-apiserver calls each of them
            "SlurmExtenderCertificateEndsSoon",
            _near_its_end(HOURS, "certificate"),
            "1m",
            Severity.CRITICAL,
            "The webhooks' certificate ends in {{ $value | humanizeDuration }}: then no Pod can ask for"
            " Slurm",
            "It is the certificate of one replica at least, and kube-apiserver calls all of them. When"
            " it is over kube-apiserver rejects Pods that ask for Slurm.",
        ),
        Alert(
            "SlurmExtenderFileRejected",
            labelled(f"min {by()} (slurm_extender_policy_good) == 0", "file", "policy")
            + " or "
            + labelled(f"min {by()} (slurm_extender_pools_good) == 0", "file", "pools"),
            "5m",
            Severity.WARNING,
            "The file of the {{ $labels.file }} is wrong, and what it says now does not count",
            "What it said last while it was right still counts. The log names the line. Do not restart"
            " the extender before it is right.",
        ),
        Alert(
            "SlurmExtenderComponentDegraded",
            of_leader_or_all(degraded("|".join(_HAVE_ALERTS), but=True), "component"),
            "15m",
            Severity.WARNING,
            "A component of the extender is in trouble: {{ $labels.component }}",
            "/readyz names it, and the log says why.",
        ),
        Alert(
            "SlurmExtenderReplicaDegraded",
            of_standby_alone(degraded("|".join(_FILES), but=True), "component"),
            "15m",
            Severity.WARNING,
            "A standby replica is in trouble: {{ $labels.component }} of"
            " {{ or $labels.pod $labels.instance }}",
            "The leader is not, and does the work. Should it end, this replica cannot take over: the"
            " extender has one replica less. It still answers webhooks, and kube-scheduler beside it.",
        ),
    ),
)
