#!/bin/sh
# Before slurmd is ended: the node takes no more jobs, and those that it has end by themselves.
node=$1 pool=$2 quiet=0

shown=$(scontrol show node "$node" 2>&1)
state=${shown#*State=}
case ${state%%[!A-Z_+*]*} in
*DRAIN* | *DOWN* | *POWER*) ;; # whoever did that has said why; one that is off takes no jobs
*) scontrol update nodename="$node" state=drain \
    reason="slurm-extender pool $pool: its slurmd Pod is being deleted" || : ;; # the extender does so, too
esac

# A job has a slurmstepd, or its Prolog or Epilog runs. What has ended has no command line, nor what
# slurmstepd leaves to hold its cgroup (slurmstepd infinity).
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
