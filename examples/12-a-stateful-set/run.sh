#!/bin/sh
# shellcheck source=../steps.sh
set -eu
cd "$(dirname "$0")"
. ../steps.sh

begin

say "Each Pod has a job with the Pod's name."
apply stateful-set.yaml
for pod in a-stateful-set-0 a-stateful-set-1; do
    runs "$pod"
    show "$pod"
    called=$(squeue -h -j "$job" -o %j)
    [ "${called%%#*}" = "$pod@$NAMESPACE" ] || fail "job $job of Pod $pod is called $called"
done

say "The StatefulSet creates a deleted Pod again, with a new job."
before=$uid first=$job
is_back() {
    look_at a-stateful-set-1
    [ -n "$uid" ] && [ "$uid" != "$before" ]
}
run kubectl delete pod a-stateful-set-1
wait_for "it is made again" is_back
runs a-stateful-set-1
show a-stateful-set-1
[ "$job" != "$first" ] || fail "it has the job $first of the Pod before it"
wait_for "job $first is over" is_over "$first"

pass "a-stateful-set-1 had job $first, and came back with job $job"
