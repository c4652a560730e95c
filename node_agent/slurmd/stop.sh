#!/bin/sh
# Runs before slurmd ends. Drains the node, so that Slurm starts no more jobs here, and waits until the running
# jobs have ended by themselves.
node=$1 pool=$2 quiet=0

shown=$(scontrol show node "$node" 2>&1)
state=${shown#*State=}
case ${state%%[!A-Z_+*]*} in
*DRAIN* | *DOWN* | *POWER*) ;; # the state already has a reason; a node without power takes no jobs
*) scontrol update nodename="$node" state=drain \
    reason="slurm-extender pool $pool: its slurmd Pod is being deleted" || : ;; # the extender also drains the node
esac

# Succeeds if a process belongs to a job: a slurmstepd, a Prolog or an Epilog. An ended process has no command line,
# and does not count. `slurmstepd infinity` only keeps a cgroup, and does not count.
is_job() {
    args=$(tr '\0' ' ' <"$1/cmdline")
    case $args in
    '') return 1 ;;
    *slurmstepd\ infinity*) return 1 ;;
    esac
    name=''
    read -r name <"$1/comm"
    [ "$name" = slurmstepd ] || tr '\0' '\n' <"$1/environ" | grep -q '^SLURM_SCRIPT_CONTEXT=\(pro\|epi\)log_slurmd'
}

while [ "$quiet" -lt 3 ]; do
    quiet=$((quiet + 1))
    for process in /proc/[0-9]*; do
        if is_job "$process" 2>/dev/null; then quiet=0; fi
    done
    sleep 1
done
