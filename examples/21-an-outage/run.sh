#!/bin/sh
# shellcheck source=../steps.sh
set -eu
cd "$(dirname "$0")"
. ../steps.sh

begin
[ -n "${OUTAGE_BEGINS:-}" ] && [ -n "${OUTAGE_ENDS:-}" ] ||
    skip "OUTAGE_BEGINS and OUTAGE_ENDS are no commands"

end_outage() {
    sh -c "$OUTAGE_ENDS"
}

say "Two Pods run."
apply running.yaml
runs an-outage-running
running=$uid of_running=$job
runs an-outage-cancelled
cancelled=$uid of_cancelled=$job

say "The outage begins."
run sh -c "$OUTAGE_BEGINS"
later end_outage
made=yes
try_to_apply new.yaml || made=""
[ -n "$made" ] || say "kube-apiserver rejects new Pods meanwhile."
run scancel "$of_cancelled" # squeue and scancel need no slurmrestd
sleep 5
look_at an-outage-running
[ "$uid" = "$running" ] && [ "$phase" = Running ] ||
    fail "Pod an-outage-running does not run any more: $seen"
look_at an-outage-new
[ -z "$message" ] || say "$reason: $message"
[ -z "$node" ] || fail "Pod an-outage-new came to Node $node during the outage: was there one?"

say "The outage is over. The extender reacts to all changes during the outage."
run sh -c "$OUTAGE_ENDS"
taken_back
again() {
    try_to_apply new.yaml >/dev/null
    seen=$said
    [ -z "$refused" ]
}
[ -n "$made" ] || wait_for "the Pod that was rejected is made" again
runs an-outage-new
show an-outage-new
wait_for "Pod an-outage-cancelled is gone" is_gone an-outage-cancelled
wait_for "an Event says why" has_event "$cancelled" SlurmJobCancelled
say "$seen"
runs an-outage-running
[ "$uid $job" = "$running $of_running" ] ||
    fail "an-outage-running is another Pod, or has another job: $job"
show an-outage-running

pass "a running Pod and its job $of_running were left alone, and the rest was made up for"
