#!/bin/sh
# shellcheck source=../steps.sh
set -eu
cd "$(dirname "$0")"
. ../steps.sh

begin

say "The Pod's job may run for a minute."
apply pod.yaml
runs a-time-limit
run squeue -j "$job" -o "%i %j %T %l %M"
limit=$(squeue -h -j "$job" -o %l)
[ "$limit" = 1:00 ] || fail "the time limit of job $job is $limit, and not 1:00"
limited=$job evicted=$uid

say "After the time limit, the Pod is evicted. Slurm checks time limits every half minute."
WITHIN=$((WITHIN + 100))
wait_for "Pod a-time-limit is gone" is_gone a-time-limit
job_is "$limited" TIMEOUT || fail "job $limited did not reach its time limit: $seen"
wait_for "an Event says why" has_event "$evicted" SlurmJobTimeout
say "$seen"

pass "job $limited reached its time limit, and the Pod was evicted for it"
