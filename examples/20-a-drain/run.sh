#!/bin/sh
# shellcheck source=../steps.sh
set -eu
cd "$(dirname "$0")"
. ../steps.sh

begin
kubectl auth can-i patch nodes >/dev/null 2>&1 || skip "you may not cordon Nodes"
idle_node "$PARTITION"

is_drained() {
    seen=$(sinfo -h -N -n "$NODE" -o "%T %E" | sort -u)
    contains "$seen" drain && contains "$seen" "$1"
}
is_in_service() {
    seen=$(sinfo -h -N -n "$NODE" -o "%T %E" | sort -u)
    ! contains "$seen" drain
}
is_told() {
    of_node='.status.conditions[?(@.type=="slurm-extender.io/SlurmOutOfService")]'
    words="{$of_node.status} {$of_node.reason}: {$of_node.message}"
    seen=$(kubectl get node "$of_kubernetes" -o jsonpath="$words")
    [ "${seen#"$1 $2"}" != "$seen" ]
}

say "A Pod runs on the node $NODE."
apply pod.yaml
runs a-drain
before=$uid

say "A cordon in Kubernetes drains the node in Slurm. An uncordon resumes the node."
run kubectl cordon "$of_kubernetes"
later kubectl uncordon "$of_kubernetes"
wait_for "Slurm's node $NODE is drained" is_drained "slurm-extender: cordoned in Kubernetes"
run sinfo -p "$PARTITION" -n "$NODE" -o "%N %T %E"
run kubectl uncordon "$of_kubernetes"
taken_back
wait_for "Slurm's node $NODE is in service" is_in_service

say "A drain in Slurm sets a condition of the Node."
as_administrator scontrol update NodeName="$NODE" State=DRAIN Reason="$NAME: a person's own"
later scontrol update NodeName="$NODE" State=RESUME
wait_for "Node $of_kubernetes says that it is drained in Slurm" is_told True DrainedInSlurm
say "$seen"
run scontrol update NodeName="$NODE" State=RESUME
taken_back
wait_for "Node $of_kubernetes says that it is in service" is_told False InService

say "The Pod on the node still runs."
runs a-drain
[ "$uid" = "$before" ] || fail "it is another Pod"
show a-drain

pass "$NODE was drained and taken back from both sides, and the Pod ran on"
