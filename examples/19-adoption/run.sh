#!/bin/sh
# shellcheck source=../steps.sh
set -eu
cd "$(dirname "$0")"
. ../steps.sh

begin

is_adopted() {
    noted='.metadata.annotations.slurm-extender\.io/adopted-as'
    adopted=$(kubectl get pod adoption -o jsonpath="{$noted}")
    [ -n "$adopted" ]
}
# Succeeds if the Pod is adopted. The script cannot see whether the extender adopts Pods. So after ten
# seconds without an adoption, the script skips the example, unless ADOPTS=yes.
is_adopted_or_never() {
    is_adopted && return
    [ "${ADOPTS:-}" = yes ] || [ "$(date +%s)" -lt "$gives_up" ] ||
        skip "Pods are not adopted here (SLURM_EXTENDER_UNMANAGED_PODS=adopt)"
    return 1
}

say "The Pod does not ask for Slurm."
apply pod.yaml
wait_for "the Pod is bound" is_bound adoption
[ -z "$job" ] || skip "every Pod of namespace $NAMESPACE goes to Slurm"
of_slurm=$(slurm_node "$node")
scontrol show node "$of_slurm" >/dev/null 2>&1 ||
    skip "the Pod came to Node $node, which is none of Slurm's"

say "The Pod gets a job on its node within about a second."
gives_up=$(($(date +%s) + 10))
wait_for "Pod adoption has a job" is_adopted_or_never
run squeue -j "$adopted" -o "%i %j %T %N"
seen=$(squeue -h -j "$adopted" -o "%T %N")
[ "$seen" = "RUNNING $of_slurm" ] ||
    fail "the Pod is on $of_slurm, and squeue says of its job $adopted: $seen"

say "The end of this job does not evict the Pod."
as_administrator scancel "$adopted"
wait_for "job $adopted is over" is_over "$adopted"
sleep 2
look_at adoption
[ "$phase" = Running ] || fail "the Pod does not run any more: $seen"
show adoption

pass "the Pod was adopted as job $adopted on $of_slurm, and outlived it"
