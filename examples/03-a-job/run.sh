#!/bin/sh
# shellcheck source=../steps.sh
set -eu
cd "$(dirname "$0")"
. ../steps.sh

begin

say "Slurm places the Pod of the Job like any other Pod."
apply job.yaml
wait_for "the Job has a Pod" has_pod a-job
wait_for "Pod $pod is bound" is_bound "$pod"
run squeue -j "$job" -o "%i %j %T %N %k"

say "After the containers have ended, the job in Slurm ends, too."
wait_for "Pod $pod runs, or has run" has_started "$pod"
end_containers "$pod"
wait_for "the Job is complete" is_complete a-job
run kubectl get job a-job
wait_for "job $job is over" is_over "$job"
wait_for "its comment says how" has_comment "$job" "three seconds of work; Pod succeeded"
run squeue -t all -j "$job" -o "%i %j %T %k"

pass "job $job ended with the Pod's containers, and its comment says that the Pod succeeded"
