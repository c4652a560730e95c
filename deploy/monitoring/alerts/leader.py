"""Alerts about the extender's replicas: leader, token, certificate, files and components."""

from typing import Final

from deploy.monitoring.lifetimes import DAYS, HOURS, NearItsEnd, left, unless_renewed_so_late
from deploy.monitoring.releases import by
from deploy.monitoring.replicas import LEADING, degraded, of_leader_or_all, of_standby_alone
from deploy.monitoring.rule import Alert, Group, Severity, labelled

_GONE_WITHIN: Final = "1d"
"""Time for which SlurmExtenderNoLeader reports a release after the release's series have disappeared
from Prometheus."""
_FILES: Final = ("policy", "pools' file")
"""Components whose alert fires for a problem of any replica, even of a single standby."""
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
"""Components with an alert of their own."""


def _near_its_end(near: NearItsEnd, what: str) -> str:
    """Returns the expression for the seconds until the expiry, if a token or certificate of any replica
    is near its expiry. `near` is the limit. `what` is "token" or "certificate"."""
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
            "No replica of the extender leads: no Pod of Slurm is placed",
            "No replica answers Prometheus, or no replica both holds the Lease and has read Slurm and"
            " Kubernetes. Running Pods and jobs go on. While no replica is up, kube-apiserver rejects"
            " Pods that ask for Slurm.",
        ),
        Alert(
            "SlurmExtenderLeaderFlapping",
            f"max {by()} (increase(slurm_extender_lease_transitions_total[30m])) > 4",
            "0m",
            Severity.WARNING,
            "The extender's leader has changed {{ $value | humanize }} times in half an hour",
            "Replicas end, or cannot renew the Lease in time. Each new leader first reads Slurm and"
            " Kubernetes.",
        ),
        left("token"),
        left("certificate"),
        Alert(
            "SlurmExtenderTokenNearItsEnd",
            _near_its_end(DAYS, "token"),
            "5m",
            Severity.WARNING,
            "Slurm's token expires in {{ $value | humanizeDuration }}",
            "Four fifths of the token's lifetime are over. The token was not rotated, or a replica"
            " does not get the new token. After the expiry, Slurm rejects every call.",
        ),
        Alert(
            "SlurmExtenderTokenEndsSoon",
            unless_renewed_so_late(of_leader_or_all(HOURS.of("token")), "token"),
            "1m",
            Severity.CRITICAL,
            "Slurm's token expires in {{ $value | humanizeDuration }}: no Pod then gets a job",
            "This is the token of the leader, or of all replicas. After the expiry, Slurm rejects"
            " every call. Create another token, and put the token into the Secret. No restart is"
            " needed.",
        ),
        Alert(
            "SlurmExtenderCertificateNearItsEnd",
            _near_its_end(DAYS, "certificate"),
            "5m",
            Severity.WARNING,
            "The webhooks' certificate expires in {{ $value | humanizeDuration }}",
            "Four fifths of the certificate's lifetime are over. The certificate was not renewed, or"
            " a replica does not get the new certificate. After the expiry, kube-apiserver rejects"
            " every Pod that asks for Slurm.",
        ),
        Alert(  # for any replica, because kube-apiserver calls all replicas
            "SlurmExtenderCertificateEndsSoon",
            _near_its_end(HOURS, "certificate"),
            "1m",
            Severity.CRITICAL,
            "The webhooks' certificate expires in {{ $value | humanizeDuration }}: no Pod can then"
            " ask for Slurm",
            "This is the certificate of at least one replica, and kube-apiserver calls all replicas."
            " After the expiry, kube-apiserver rejects Pods that ask for Slurm.",
        ),
        Alert(
            "SlurmExtenderFileRejected",
            labelled(f"min {by()} (slurm_extender_policy_good) == 0", "file", "policy")
            + " or "
            + labelled(f"min {by()} (slurm_extender_pools_good) == 0", "file", "pools"),
            "5m",
            Severity.WARNING,
            "The file of the {{ $labels.file }} has an error, and its last change has no effect",
            "The last valid version of the file stays in force. The log names the wrong line. Do not"
            " restart the extender before the file is correct.",
        ),
        Alert(
            "SlurmExtenderComponentDegraded",
            of_leader_or_all(degraded("|".join(_HAVE_ALERTS), but=True), "component"),
            "15m",
            Severity.WARNING,
            "A component of the extender is degraded: {{ $labels.component }}",
            "/readyz names the component, and the log has the reason.",
        ),
        Alert(
            "SlurmExtenderReplicaDegraded",
            of_standby_alone(degraded("|".join(_FILES), but=True), "component"),
            "15m",
            Severity.WARNING,
            "A standby replica is degraded: {{ $labels.component }} of"
            " {{ or $labels.pod $labels.instance }}",
            "The leader is not degraded, and works. If the leader ends, this replica cannot take"
            " over. The replica still answers webhooks, and the kube-scheduler beside it.",
        ),
    ),
)
