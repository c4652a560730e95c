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

four_run() {
    pods=$(pods_of job-name=mpi)
    seen="these run: $pods"
    # shellcheck disable=SC2086 # a word for each Pod
    set -- $pods
    [ $# -eq 4 ]
}

say "Each Pod has a job. The first Pod starts the program as soon as it reaches all Pods."
apply mpi.yaml
wait_for "4 Pods run" four_run
jobs=""
for pod in $pods; do
    runs "$pod"
    show "$pod"
    jobs="$jobs $job"
done

say "After the end of mpirun, all Pods and their jobs end."
first=$(kubectl get pods -l job-name=mpi,batch.kubernetes.io/job-completion-index=0 \
    -o 'jsonpath={.items[*].metadata.name}')
end_containers "$first"
wait_for "the Job is complete" is_complete mpi
run kubectl get job mpi
kubectl logs "$first" 2>/dev/null || true # only real containers have a log
for job in $jobs; do
    wait_for "job $job is over" is_over "$job"
done

pass "4 Pods with jobs$jobs were one program"
