# shellcheck shell=bash
# One rank of a program that speaks PMI2 with slurmstepd as MPI's libraries do (Slurm's
# src/plugins/mpi/pmi2): it tells all ranks a word, and prints its neighbour's.
set -eu

# Six digits, so many bytes.
ask() {
    printf '%-6d%s' "${#1}" "$1" >&"$PMI_FD"
    read -r -N 6 -u "$PMI_FD" size
    read -r -N $((size)) -u "$PMI_FD" answer
    case $answer in *';rc=0;'*) ;; *) echo "rank $PMI_RANK: $1: $answer" >&2 && exit 1 ;; esac
}

echo 'cmd=init pmi_version=2 pmi_subversion=0' >&"$PMI_FD"
read -r -u "$PMI_FD" answer
[ "$answer" = 'cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0' ]
ask "cmd=fullinit;pmijobid=$PMI_JOBID;pmirank=$PMI_RANK;threaded=FALSE;"
ask "cmd=kvs-put;key=word-$PMI_RANK;value=$SLURMD_NODENAME:$PMI_RANK;"
ask 'cmd=kvs-fence;'
neighbour=$(((PMI_RANK + 1) % PMI_SIZE))
ask "cmd=kvs-get;key=word-$neighbour;"
value=${answer#*;value=}
echo "$SLURMD_NODENAME:$PMI_RANK ${value%%;*}"
ask 'cmd=finalize;'
