#!/bin/sh
# What the container of a slurmd Pod runs: the pool's scripts in their order, then slurmd with the options
# that it is given. A script `*.service` is kept running beside slurmd.
#
# As process 1 of the container the shell reaps what nobody waits for, as slurmd does not with the
# slurmstepds of its jobs; and it hears SIGTERM also while a script runs.
set -eu
trap 'exit 143' TERM INT

for script in /slurm-extender/scripts/*; do
    case $script in
    '/slurm-extender/scripts/*') break ;; # there are none
    *.service)
        while :; do
            "$script" || echo "service ${script##*/} ended with exit status $?: it is started again"
            sleep 1
        done &
        ;;
    *)
        "$script" &
        wait "$!" || {
            status=$?
            echo "script ${script##*/} failed with exit status $status" | tee /dev/termination-log
            exit "$status"
        }
        ;;
    esac
done

mkdir -p /var/spool/slurmd

# The node agent reads there which release this is, and which device has which number, or why slurmd cannot tell.
list_devices() {
    failed=
    (slurmd -V || :; exec timeout 60 slurmd -G "$@") >/run/slurm-extender/gres.new 2>&1 || failed=$?
    [ -z "$failed" ] || echo "fatal: slurmd -G ended with exit status $failed" >>/run/slurm-extender/gres.new
    mv /run/slurm-extender/gres.new /run/slurm-extender/gres
    [ -z "$failed" ]
}

# At `scontrol reconfigure` slurmd executes itself: the process is the same one, and its stack is elsewhere.
stack() {
    read -r stat <"/proc/$1/stat" || return
    # shellcheck disable=SC2086  # a word for each field
    set -- $stat
    echo "${28}"
}

# Lists the devices beside slurmd. Both are in one cgroup, from which `slurmd -G` takes slurmd's limits (CoreSpecCount,
# MemSpecLimit): they are put back.
list_beside() {
    done='' cpus='' memory=''
    while read -r line; do place=/sys/fs/cgroup${line#0::}; done <"/proc/$slurmd/cgroup"
    read -r cpus <"$place/cpuset.cpus" || :
    read -r memory <"$place/memory.max" || :
    list_devices "$@" && done=yes
    [ -z "$cpus" ] || echo "$cpus" >"$place/cpuset.cpus" || :
    [ -z "$memory" ] || echo "$memory" >"$place/memory.max" || :
    [ -n "$done" ]
}

# Lists the devices whenever this slurmd has executed itself, since it may number them in another order. Its environment
# has SLURMD_RECONF if it has done so before this program looks.
follow() {
    slurmd=$1 listed=$2
    shift 2
    sleep 1
    of=$(stack "$slurmd")
    case $listed$(tr '\0' '\n' <"/proc/$slurmd/environ") in
    *SLURMD_RECONF=*) of= ;;
    yes*) ;;
    *) of= ;; # the first list has failed
    esac
    while now=$(stack "$slurmd"); do
        if [ "$now" != "$of" ] && list_beside "$@"; then of=$now; fi
        sleep 2
    done
}

# slurmctld waits for a boot of the node; a second one it would take for a crash, and end its jobs.
boot=
if [ -n "${SLURM_EXTENDER_BOOTS:-}" ] && [ ! -e /slurm-extender/pod/booted ]; then
    : >/slurm-extender/pod/booted
    boot=-b
fi

# A slurmd that has crashed is started again beside the steps of its jobs, which would end with the container.
# One that crashes at once ends it, so that people see it.
ends=
while :; do
    list_devices "$@" &
    wait "$!" && listed=yes || listed=
    began=$(date +%s)
    slurmd "$@" $boot &
    slurmd=$! boot=
    follow "$slurmd" "$listed" "$@" 2>/dev/null &
    follower=$!
    trap 'ends=yes; kill -TERM "$slurmd"' TERM INT
    while :; do
        wait "$slurmd" && status=0 || status=$?
        kill -0 "$slurmd" 2>/dev/null || break # a signal ends the wait, too
    done
    [ -z "$ends" ] && [ $(($(date +%s) - began)) -ge 60 ] || exit "$status"
    echo "slurmd ended with exit status $status: it is started again"
    trap 'exit 143' TERM INT
    wait "$follower" || :
done
