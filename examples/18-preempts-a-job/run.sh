#!/bin/sh
# shellcheck source=../steps.sh
set -eu
cd "$(dirname "$0")"
. ../steps.sh

begin
needs_preemption
idle_node "$LOW"

say "A native job of partition $LOW runs on the node $NODE."
native --partition="$LOW" --nodelist="$NODE"

alone "$native"
say "A Pod of partition $HIGH requests the whole node."
apply pod.yaml
runs preempts-a-job
show preempts-a-job
[ "$of_slurm" = "$NODE" ] || fail "the Pod runs on $of_slurm, and not on $NODE"
run squeue -t all -j "$native" -o "%i %j %T %r"
! job_is "$native" RUNNING || fail "native job $native still runs beside a Pod that has $NODE for itself"

pass "the Pod's job $job took $NODE from native job $native"
