#!/bin/sh
# shellcheck source=../steps.sh
set -eu
cd "$(dirname "$0")"
. ../steps.sh

begin
idle_node "$PARTITION"
! scontrol show reservation a-reservation >/dev/null 2>&1 ||
    fail "there is a reservation a-reservation already: of a run before this?" \
        "scontrol delete ReservationName=a-reservation"

say "The reservation must allow the owner of Pods' jobs. A Pod shows this owner."
apply without.yaml
runs a-reservation-without
owner=$(squeue -h -j "$job" -o %u)
run kubectl delete pod a-reservation-without
wait_for "job $job is over" is_over "$job"

say "The node $NODE is reserved for $owner."
as_administrator scontrol create reservation ReservationName=a-reservation StartTime=now Duration=30 \
    Nodes="$NODE" Users="$owner"
later scontrol delete ReservationName=a-reservation

say "A Pod that names the reservation runs there. A Pod without the name waits."
apply_or_skip with.yaml policy \
    "the policy does not allow reservation a-reservation in namespace $NAMESPACE"
apply without.yaml
runs a-reservation-with
show a-reservation-with
reserved=$job
[ "$of_slurm" = "$NODE" ] || fail "the Pod runs on $of_slurm, and not on the reserved $NODE"
wait_for "the other Pod says why it waits" \
    waits_for a-reservation-without "ReqNodeNotAvail|Resources|Priority"
say "$reason: $message"

say "Without the reservation, both Pods run."
run kubectl delete pod a-reservation-with
wait_for "job $reserved is over" is_over "$reserved"
as_administrator scontrol delete ReservationName=a-reservation
taken_back
runs a-reservation-without
show a-reservation-without

pass "the Pod that named the reservation ran on $NODE, and the other waited until it was deleted"
