#!/bin/sh
# shellcheck source=../steps.sh
set -eu
cd "$(dirname "$0")"
. ../steps.sh

begin
[ "$USER_ID" -ne 0 ] || skip "USER_ID names no user but root"

say "The Pod requests a job of the Slurm user $USER_ID."
apply_or_skip pod.yaml policy \
    "the policy does not allow user-id $USER_ID in namespace $NAMESPACE"
runs a-user
show a-user

say "The job belongs to this user."
run squeue -j "$job" -o "%i %j %T %u %U"
owner=$(squeue -h -j "$job" -o %U)
[ "$owner" = "$USER_ID" ] || fail "job $job is user $owner's, and not $USER_ID's"

pass "job $job is user $USER_ID's"
