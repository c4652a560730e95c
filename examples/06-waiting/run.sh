#!/bin/sh
# shellcheck source=../steps.sh
set -eu
cd "$(dirname "$0")"
. ../steps.sh

begin
idle_node "$PARTITION"

say "A native job has the whole node $NODE."
native --partition="$PARTITION" --nodelist="$NODE" --exclusive

say "A Pod that requests the same node waits. Its condition has the reason."
apply pod.yaml
wait_for "the Pod says why it waits" waits_for waiting "Resources|Priority|ReqNodeNotAvail"
why=$reason
say "$why: $message"
as_squeue_says() {
    look_at waiting
    why=$reason
    seen=$(squeue -h -j "${job:-0}" -o "%T %r" 2>&1)
    [ "$seen" = "PENDING $why" ]
}
wait_for "squeue says the same" as_squeue_says
run squeue -j "$job,$native" -o "%i %j %T %r %N"

say "The native job ends."
run scancel "$native"
taken_back
runs waiting
show waiting
[ "$of_slurm" = "$NODE" ] || fail "the Pod runs on $of_slurm, and not on $NODE"

pass "the Pod waited for $why behind native job $native on $NODE, and started after it"
