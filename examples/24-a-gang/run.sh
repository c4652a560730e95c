#!/bin/sh
# shellcheck source=../steps.sh
set -eu
cd "$(dirname "$0")"
. ../steps.sh

# Prints a line for each Pod of the gang that is not being deleted: the name, the job, the Node.
members() {
    fields='{.metadata.name} {.metadata.annotations.slurm-extender\.io/job-id} {.spec.nodeName}'
    kubectl get pods -l batch.kubernetes.io/job-name=a-gang \
        -o jsonpath="{range .items[*]}$fields {.metadata.deletionTimestamp}{\"\\n\"}{end}" 2>/dev/null |
        awk 'NF == 3'
}

# Three Pods are bound by one job, whose id is $job then.
is_whole() {
    found=$(members)
    job=$(printf '%s\n' "$found" | awk 'NR == 1 { print $2 }')
    [ "$(printf '%s\n' "$found" | grep -c " $job ")" -eq 3 ]
}

begin

say "The three Pods of the Job have one job in Slurm, and start together."
apply job.yaml
wait_for "all Pods are bound" is_whole
run kubectl get pods -l batch.kubernetes.io/job-name=a-gang -o wide
run squeue -j "$job" -o "%i %j %T %N"
called=$(squeue -h -j "$job" -o %j)
[ "${called%%#*}" = "a-gang@$NAMESPACE" ] || fail "job $job is called $called"

say "A Pod that replaces a deleted Pod joins the same job."
first=$job lost=$(members | awk 'NR == 1 { print $1 }')
is_replaced() {
    is_whole && ! contains "$(members)" "$lost"
}
run kubectl delete pod "$lost"
wait_for "another Pod has the place of $lost" is_replaced
run kubectl get pods -l batch.kubernetes.io/job-name=a-gang -o wide
[ "$job" = "$first" ] || fail "the Pods have job $job instead of $first"

pass "three Pods started in job $job, and a fourth Pod replaced one of them in the same job"
