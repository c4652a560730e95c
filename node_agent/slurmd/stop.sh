#!/bin/sh
# Before slurmd is ended: the node takes no more jobs, and those that it has end by themselves.
node=$1 pool=$2 quiet=0

case $(scontrol show node "$node" 2>&1) in
*State=*DRAIN* | *State=*POWER*) ;; # whoever drained it has said why; one that is off takes no jobs
*) scontrol update nodename="$node" state=drain \
    reason="slurm-extender pool $pool: its slurmd Pod is being deleted" || : ;; # the extender does so, too
esac

while [ "$quiet" -lt 3 ]; do
    quiet=$((quiet + 1))
    for comm in /proc/[0-9]*/comm; do
        read -r name 2>/dev/null <"$comm" || continue
        [ "$name" != slurmstepd ] || quiet=0
    done
    sleep 1
done
