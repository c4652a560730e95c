#!/bin/sh
# shellcheck source=../steps.sh
set -eu
cd "$(dirname "$0")"
. ../steps.sh

begin

say "Slurm does not know the partition. The Pod's condition has the reason."
apply pod.yaml
wait_for "the Pod says that it is invalid" waits_for a-wrong-partition Invalid
contains "$message" nowhere || fail "the Pod does not name the partition: $message"
say "$message"
wait_for "an Event says so" has_event "$uid" Invalid

say "After the correction, the same Pod runs."
same=$uid
run kubectl annotate --overwrite pod a-wrong-partition "${PREFIX}partition=$PARTITION"
runs a-wrong-partition
[ "$uid" = "$same" ] || fail "it is another Pod"
show a-wrong-partition

pass "the Pod said what Slurm has against partition nowhere, and ran after kubectl annotate"
