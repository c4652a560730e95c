#!/bin/sh
# shellcheck source=../steps.sh
set -eu
cd "$(dirname "$0")"
. ../steps.sh

begin
[ -n "${ROLL_OUT:-}" ] && [ -n "${ROLL_BACK:-}" ] || skip "ROLL_OUT and ROLL_BACK are no commands"
pool=${POOL:-}
[ -n "$pool" ] || skip "POOL names no pool: all of its slurmd Pods are replaced, so you choose it"
POOL_NAMESPACE=${POOL_NAMESPACE:-slurm-nodes}

roll_back() {
    sh -c "$ROLL_BACK"
}

# Prints a line for each running slurmd Pod of the pool: the Node, and the revision of the slurmd Pod.
revisions() {
    of_pod='.metadata.labels.slurm-extender\.io/revision'
    kubectl get pods -n "$POOL_NAMESPACE" -l "slurm-extender.io/pool=$pool" \
        -o "jsonpath={range .items[?(@.status.phase=='Running')]}{.spec.nodeName} {$of_pod}{'\n'}{end}"
}
revision_of() {
    revisions | sed -n "s/^$1 //p"
}

nodes=$(revisions | grep -c .) || skip "no slurmd Pods of pool $pool run in namespace $POOL_NAMESPACE"
[ "$nodes" -gt 1 ] || skip "pool $pool has one Node only"
idle_node "$PARTITION"
old=$(revision_of "$of_kubernetes")
[ -n "$old" ] || skip "node $NODE of partition $PARTITION is not in pool $pool: set PARTITION"

say "A native job runs on $NODE, and the pool gets a new template."
native --partition="$PARTITION" --nodelist="$NODE"
run kubectl get pods -n "$POOL_NAMESPACE" -L slurm-extender.io/revision
run sh -c "$ROLL_OUT"
later roll_back

# Succeeds if all other Nodes have new slurmd Pods, and the busy Node has the old slurmd Pod.
others_are_replaced() {
    seen=$(revisions)
    [ "$(printf '%s\n' "$seen" | grep -c -v " $old$")" -eq $((nodes - 1)) ] &&
        printf '%s\n' "$seen" | grep -q -x "$of_kubernetes $old"
}
say "Idle nodes get the new template first."
WITHIN=$((WITHIN * 2))
wait_for "the slurmd Pods of the $((nodes - 1)) other Nodes are replaced" others_are_replaced
job_is "$native" RUNNING || fail "native job $native does not run any more: $seen"

say "The job has ended: its node gets the template, too."
run scancel "$native"
all_have_changed() {
    seen=$(revisions)
    [ "$(printf '%s\n' "$seen" | grep -c -v " $1$")" -eq "$nodes" ]
}
wait_for "all slurmd Pods are replaced" all_have_changed "$old"
run kubectl get pods -n "$POOL_NAMESPACE" -L slurm-extender.io/revision
new=$(revision_of "$of_kubernetes")

say "The pool gets the old template again."
run sh -c "$ROLL_BACK"
taken_back
wait_for "all slurmd Pods are as they were" all_have_changed "$new"

pass "$nodes slurmd Pods were replaced and put back, and native job $native was not disturbed"
