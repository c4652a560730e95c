#!/bin/sh
# shellcheck source=../steps.sh
set -eu
cd "$(dirname "$0")"
. ../steps.sh

begin
idle_node "$PARTITION" # without an idle node, the Pod would wait

say "The Pod requests one CPU, and a node without other jobs."
apply pod.yaml
runs a-whole-node
show a-whole-node

say "The Pod's job has all CPUs of the node."
run squeue -j "$job" -o "%i %j %T %N %C"
has=$(squeue -h -j "$job" -o %C)
all=$(scontrol -o show node "$of_slurm" | sed -n 's/.*CPUEfctv=\([0-9]*\).*/\1/p')
[ "$has" = "$all" ] || fail "job $job has $has of the $all CPUs of $of_slurm"

pass "job $job has all $all CPUs of $of_slurm"
