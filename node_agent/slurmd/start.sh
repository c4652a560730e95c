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
    make_list "$@" || failed=$?
    [ -z "$failed" ] || echo "fatal: slurmd -G ended with exit status $failed" >>/run/slurm-extender/gres.new
    mv /run/slurm-extender/gres.new /run/slurm-extender/gres
    [ -z "$failed" ]
}

make_list() {
    (slurmd -V || :; exec timeout 60 slurmd -G "$@") >/run/slurm-extender/gres.new 2>&1
}

# Lists the devices by the files that slurmd has read, as slurmd reads them after it has executed itself (slurmd.c,
# _establish_configuration): slurmctld may have newer ones, of which this slurmd was not told. Keys of auth/slurm are
# looked for beside slurm.conf, unless a variable names them (fetch_config.c).
list_by_its_files() {
    [ -e /run/slurm/conf/slurm.conf ] || return
    (
        export SLURM_CONF=/run/slurm/conf/slurm.conf SLURMD_RECONF_CONF_CACHE=/run/slurm/conf
        if [ -e /etc/slurm/slurm.jwks ]; then
            export SLURM_SACK_JWKS="${SLURM_SACK_JWKS:-/etc/slurm/slurm.jwks}"
        elif [ -e /etc/slurm/slurm.key ]; then
            export SLURM_SACK_KEY="${SLURM_SACK_KEY:-/etc/slurm/slurm.key}"
        fi
        make_list "$@"
    ) && mv /run/slurm-extender/gres.new /run/slurm-extender/gres
}

# At `scontrol reconfigure` slurmd executes itself: the process is the same one, and its stack is elsewhere.
stack() {
    read -r stat <"/proc/$1/stat" || return
    # shellcheck disable=SC2086  # a word for each field
    set -- $stat
    echo "${28}"
}

# slurmd opens its port after it has read its configuration and found its devices.
listens() {
    files=$(ls -l "/proc/$1/fd") || return
    cat "/proc/$1/net/tcp" "/proc/$1/net/tcp6" | (
        while read -r _ _ _ state _ _ _ _ _ inode _; do
            [ "$state" = 0A ] || continue
            case $files in *"socket:[$inode]"*) exit 0 ;; esac
        done
        exit 1
    )
}

# Lists the devices beside slurmd. Both are in one cgroup, from which `slurmd -G` takes slurmd's limits (CoreSpecCount,
# MemSpecLimit): they are put back. A key in a folder other than /etc/slurm is found only by fetching the files.
list_beside() {
    done='' cpus='' memory=''
    while read -r line; do place=/sys/fs/cgroup${line#0::}; done <"/proc/$slurmd/cgroup"
    read -r cpus <"$place/cpuset.cpus" || :
    read -r memory <"$place/memory.max" || :
    if list_by_its_files "$@" || list_devices "$@"; then done=yes; fi
    [ -z "$cpus" ] || echo "$cpus" >"$place/cpuset.cpus" || :
    [ -z "$memory" ] || echo "$memory" >"$place/memory.max" || :
    [ -n "$done" ]
}

# Lists the devices when this slurmd has opened its port: slurmctld may have had another configuration at the list before.
# Lists them again whenever slurmd has executed itself, since slurmd may number them in another order then.
follow() {
    slurmd=$1 of=
    shift
    until listens "$slurmd"; do
        [ -e "/proc/$slurmd" ] || return 0
        sleep 1
    done
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
    wait "$!" || :
    began=$(date +%s)
    slurmd "$@" $boot &
    slurmd=$! boot=
    follow "$slurmd" "$@" 2>/dev/null &
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
