#!/bin/sh
# shellcheck source=../steps.sh
set -eu
cd "$(dirname "$0")"
. ../steps.sh

begin

say "This command starts a Job of the CronJob now."
apply cron-job.yaml
run kubectl create job a-cron-job-now --from=cronjob/a-cron-job
wait_for "the Job has a Pod" has_pod a-cron-job-now
wait_for "Pod $pod is bound" is_bound "$pod"
run squeue -j "$job" -o "%i %j %T %N %l"

say "The Job's Pod ends, and its job in Slurm ends, too."
wait_for "Pod $pod runs, or has run" has_started "$pod"
end_containers "$pod"
wait_for "the Job is complete" is_complete a-cron-job-now
wait_for "job $job is over" is_over "$job"

pass "the CronJob's Pod had job $job, which is over"
