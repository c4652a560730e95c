#!/bin/sh
# shellcheck source=../steps.sh
set -eu
cd "$(dirname "$0")"
. ../steps.sh

begin
sinfo -h -p "$PARTITION" -o %G | grep -q gpu ||
    skip "no node of partition $PARTITION has GPUs (Gres=gpu:... in slurm.conf)"

say "The Pod requests a GPU as usual in Kubernetes."
apply_or_skip pod.yaml "a native job on the node may use the same GPUs" \
    "Pods may not share a node's GPUs here (SLURM_EXTENDER_SHARED_GPUS)"
runs a-gpu
show a-gpu

say "The Pod's job has a GPU, and Slurm reports its number."
granted=$(scontrol -d show job "$job" | sed -n 's/.* GRES=\([^ ]*\).*/\1/p')
say "scontrol -d show job $job: GRES=$granted"
case $granted in
    gpu:1\(* | gpu:*:1\(*) ;;
    *) fail "job $job has GRES ${granted:-none}, and not one GPU" ;;
esac

pass "job $job has $granted on $of_slurm"
