#!/bin/sh
# shellcheck source=../steps.sh
set -eu
cd "$(dirname "$0")"
. ../steps.sh

begin

run_replicas() {
    pods=$(pods_of app=a-deployment)
    seen="these run: $pods"
    # shellcheck disable=SC2086 # a word for each Pod
    set -- "$1" $pods
    [ $# -eq $(($1 + 1)) ]
}

say "Each replica has its own job."
apply deployment.yaml
wait_for "2 replicas run" run_replicas 2
for pod in $pods; do
    runs "$pod"
    show "$pod"
done

say "A user cancels one of the jobs: its Pod is evicted, and the Deployment creates a new Pod."
cancelled=$job evicted=$uid
as_administrator scancel "$cancelled"
wait_for "Pod $pod is gone" is_gone "$pod"
wait_for "an Event says why" has_event "$evicted" SlurmJobCancelled
say "$seen"
wait_for "2 replicas run again" run_replicas 2
for pod in $pods; do
    runs "$pod"
    [ "$job" != "$cancelled" ] || fail "Pod $pod has the cancelled job $cancelled"
done

say "The Deployment is scaled down: a Pod is deleted, and its job ends."
run kubectl scale deployment a-deployment --replicas=1
wait_for "1 replica is left" run_replicas 1
runs "$pods"
last=$job
one_job() {
    seen=$(squeue -h -a -o "%i %j" | grep " a-deployment.*@$NAMESPACE")
    [ "${seen%% *}" = "$last" ] && [ "$(printf '%s\n' "$seen" | grep -c .)" -eq 1 ]
}
wait_for "its job $last is the only one" one_job

pass "a job for each replica; the Pod of cancelled job $cancelled was replaced"
