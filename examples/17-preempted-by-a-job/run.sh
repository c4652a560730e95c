#!/bin/sh
# shellcheck source=../steps.sh
set -eu
cd "$(dirname "$0")"
. ../steps.sh

begin
needs_preemption
idle_node "$LOW"

say "A Pod runs in partition $LOW."
apply pod.yaml
runs preempted-by-a-job
show preempted-by-a-job
preempted=$job evicted=$uid

alone "$preempted"
say "A native job of partition $HIGH preempts the Pod's job."
native --partition="$HIGH" --nodelist="$NODE" --exclusive
wait_for "the Pod is gone" is_gone preempted-by-a-job
wait_for "an Event says why" has_event "$evicted" SlurmJobPreempted
say "$seen"
run squeue -t all -j "$preempted,$native" -o "%i %j %T %N"

pass "native job $native preempted job $preempted on $NODE, and the Pod was evicted for it"
