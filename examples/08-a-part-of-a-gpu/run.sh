#!/bin/sh
# shellcheck source=../steps.sh
set -eu
cd "$(dirname "$0")"
. ../steps.sh

begin
sinfo -h -p "$PARTITION" -o %G | grep -q shard ||
    skip "no node of partition $PARTITION has shards (Gres=...shard:... in slurm.conf)"
kubectl get nodes -o 'jsonpath={.items[*].status.allocatable}' | grep -q "\"$SHARD\"" ||
    skip "no Node has the resource $SHARD"

say "The Pod requests a shard by the resource for shards."
apply_or_skip pod.yaml "a native job on the node may use the same GPUs" \
    "Pods may not share a node's GPUs here (SLURM_EXTENDER_SHARED_GPUS)"
runs a-part-of-a-gpu
show a-part-of-a-gpu

say "The Pod's job has one shard, and Slurm reports the number of the GPU."
granted=$(scontrol -d show job "$job" | sed -n 's/.* GRES=\([^ ]*\).*/\1/p')
say "scontrol -d show job $job: GRES=$granted"
[ -n "$granted" ] || skip "job $job has no shard: SLURM_EXTENDER_GRES does not have $SHARD"
case $granted in
    shard:1\(* | shard:*:1\(*) ;;
    *) fail "job $job has $granted, and not one shard" ;;
esac

pass "job $job has $granted on $of_slurm"
