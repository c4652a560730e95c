#!/bin/sh
# shellcheck source=../steps.sh
set -eu
cd "$(dirname "$0")"
. ../steps.sh

begin
command -v ssh-keygen >/dev/null || skip "not in PATH: ssh-keygen"

say "The Pods need an SSH key to reach each other."
keys=$(mktemp -d)
later rm -r "$keys"
run ssh-keygen -q -t ed25519 -N "" -C mpi -f "$keys/key"
printf '* %s\n' "$(cat "$keys/key.pub")" >"$keys/known_hosts"
later kubectl delete secret mpi
run kubectl create secret generic mpi "--from-file=$keys"

# Four Pods run by one job, whose id is $job then.
four_run() {
    pods=$(pods_of job-name=mpi)
    job=$(kubectl get pods -l job-name=mpi \
        -o 'jsonpath={range .items[*]}{.metadata.annotations.slurm-extender\.io/job-id}{"\n"}{end}' | sort -u)
    seen="these run: $pods, by job $job"
    # shellcheck disable=SC2086 # a word for each Pod, or for each job
    set -- $pods $job
    [ $# -eq 5 ]
}

say "All Pods have one job. The first Pod starts the program as soon as it reaches all Pods."
apply mpi.yaml
wait_for "4 Pods run by one job" four_run
run kubectl get pods -l job-name=mpi -o wide
run squeue -j "$job" -o "%i %j %T %N"

say "After the end of mpirun, all Pods and their job end."
first=$(kubectl get pods -l job-name=mpi,batch.kubernetes.io/job-completion-index=0 \
    -o 'jsonpath={.items[*].metadata.name}')
end_containers "$first"
wait_for "the Job is complete" is_complete mpi
run kubectl get job mpi
kubectl logs "$first" 2>/dev/null || true # only real containers have a log
wait_for "job $job is over" is_over "$job"

pass "4 Pods with job $job were one program"
