#!/bin/sh
# shellcheck source=../steps.sh
set -eu
cd "$(dirname "$0")"
. ../steps.sh

begin
scontrol show config | grep -q "^AccountingStorageType.*slurmdbd" ||
    skip "Slurm has no accounting (AccountingStorageType in slurm.conf)"
command -v sacctmgr sacct >/dev/null || skip "not in PATH: sacctmgr or sacct"
sacctmgr -n show account "$ACCOUNT" 2>/dev/null | grep -q . ||
    skip "there is no account $ACCOUNT: set ACCOUNT"
user=$(id -un)
sacctmgr -n show associations account="$ACCOUNT" user="$user" 2>/dev/null | grep -q . ||
    skip "$user has no account $ACCOUNT"

say "The job is charged to account $ACCOUNT, under QOS $QOS."
apply_or_skip pod.yaml policy \
    "the policy does not allow account $ACCOUNT or QOS $QOS in namespace $NAMESPACE"
runs an-account
show an-account
run squeue -j "$job" -o "%i %j %T %a %q"
has=$(squeue -h -j "$job" -o "%a %q")
[ "$has" = "$ACCOUNT $QOS" ] || fail "job $job has account and QOS $has, and not $ACCOUNT $QOS"

say "Slurm's accounting lists the Pod's job."
charged=$job
run kubectl delete pod an-account
in_the_books() {
    seen=$(sacct -n -X -P -j "$charged" -o account,qos,state 2>&1)
    [ "${seen#"$ACCOUNT|$QOS|CANCELLED"}" != "$seen" ]
}
wait_for "sacct has job $charged" in_the_books
run sacct -X -j "$charged" -o jobid,jobname,account,qos,state

pass "job $charged was charged to account $ACCOUNT under QOS $QOS"
