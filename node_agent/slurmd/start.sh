#!/bin/sh
# The program of a slurmd Pod's container. Runs the pool's scripts in their order, and then slurmd with the
# options in the arguments. A script `*.service` runs beside slurmd, and is started again after each end.
#
# The shell is process 1 of the container, so the shell reaps orphaned processes. slurmd does not reap the
# slurmstepds of its jobs. The shell also receives SIGTERM while a script runs.
set -eu
trap 'exit 143' TERM INT

for script in /slurm-extender/scripts/*; do
    case $script in
    '/slurm-extender/scripts/*') break ;; # the pool has no scripts
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

# Writes the list for the node agent: slurmd's release, and the devices in the order of their numbers. If slurmd
# cannot list the devices, the list has the reason.
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

# Lists the devices by the configuration files that the running slurmd has read. slurmctld may have newer files
# that this slurmd does not know yet. With these variables, `slurmd -G` reads the files as slurmd does after slurmd has
# executed itself (slurmd.c, _establish_configuration). `slurmd -G` expects a key of auth/slurm in the folder of
# slurm.conf, unless a variable names the key (fetch_config.c).
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

# Prints the address of a process's stack. At `scontrol reconfigure`, slurmd executes itself. The process stays the
# same, but the stack gets another address.
stack() {
    read -r stat <"/proc/$1/stat" || return
    # shellcheck disable=SC2086  # a word for each field
    set -- $stat
    echo "${28}"
}

# Succeeds if a process listens on a TCP port. slurmd opens its port after slurmd has read its configuration and
# found its devices.
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

# Lists the devices while slurmd runs. `slurmd -G` runs in the same cgroup as slurmd, and removes slurmd's limits
# there (CoreSpecCount, MemSpecLimit). So this function notes the limits first, and writes them back afterwards. If a
# key is in another folder than /etc/slurm, only list_devices finds the key, because list_devices fetches the files.
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

# Lists the devices again after this slurmd has opened its port. At the time of the earlier list, slurmctld may have
# had another configuration. Also lists the devices again whenever slurmd has executed itself, because slurmd may
# then number the devices in another order.
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

# If SLURM_EXTENDER_BOOTS is set, slurmctld waits for a boot of the node, and `-b` reports the boot. slurmctld would
# take a second `-b` for a crash, and end the node's jobs. So only the first start of slurmd in this Pod gets `-b`.
boot=
if [ -n "${SLURM_EXTENDER_BOOTS:-}" ] && [ ! -e /slurm-extender/pod/booted ]; then
    : >/slurm-extender/pod/booted
    boot=-b
fi

# If slurmd crashes, slurmd is started again in this container, because the steps of its jobs would end with the
# container. If slurmd ends within a minute, the container ends, so that people see the failure.
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
        kill -0 "$slurmd" 2>/dev/null || break # a signal also ends the wait
    done
    [ -z "$ends" ] && [ $(($(date +%s) - began)) -ge 60 ] || exit "$status"
    echo "slurmd ended with exit status $status: it is started again"
    trap 'exit 143' TERM INT
    wait "$follower" || :
done
