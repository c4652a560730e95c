#!/bin/sh
# shellcheck source=../steps.sh
set -eu
cd "$(dirname "$0")"
. ../steps.sh

begin
scontrol show config | grep -q "^SelectTypeParameters.*MEMORY" ||
    skip "Slurm does not count memory (SelectTypeParameters in slurm.conf)"

say "The init container needs 300 MiB, and the container after it 100 MiB."
apply pod.yaml
runs an-init-container
show an-init-container

say "Slurm reserves the largest amount that the Pod needs at any time."
run squeue -j "$job" -o "%i %j %T %m"
memory=$(squeue -h -j "$job" -o %m)
[ "$memory" = 300M ] || fail "job $job has $memory of memory, and not 300M"

pass "job $job has 300 MiB, which the init container needs"
