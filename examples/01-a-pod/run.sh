#!/bin/sh
# shellcheck source=../steps.sh
set -eu
cd "$(dirname "$0")"
. ../steps.sh

begin

say "Slurm chooses a node for the Pod, and kube-scheduler binds the Pod to this Node."
apply pod.yaml
runs a-pod
show a-pod

say "The Pod and its job end together."
run kubectl delete pod a-pod
wait_for "job $job is over" is_over "$job"
wait_for "the job's comment says how" has_comment "$job" "Pod deleted"

pass "job $job ran on $of_slurm, as the Pod did, and ended with it"
