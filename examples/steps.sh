# shellcheck shell=sh
# The steps of the examples: each run.sh reads this file first. How both systems are asked, and that
# nothing is left behind, is here; what is to be seen, and why, is in the example.
#
# A script prints "# ..." for what comes, and "$ ..." for a command, with what that printed. Its last
# line is PASS, FAIL or SKIPPED, and what for; its exit status is 0, 1 or 77. README.md has the variables
# below.

EXAMPLE=$(basename "$PWD")
NAME=${EXAMPLE#*-} # all objects of the example are called so, or begin so
DEFAULT_PREFIX=sunk.coreweave.com/
PREFIX=${PREFIX:-$DEFAULT_PREFIX}
IMAGE=${IMAGE:-busybox}
MPI_IMAGE=${MPI_IMAGE:-mpioperator/mpi-pi:openmpi}
GPU=${GPU:-nvidia.com/gpu}
SHARD=${SHARD:-example.com/shard}
LOW=${LOW:-low}
HIGH=${HIGH:-high}
USER_ID=${USER_ID:-$(id -u)}
ACCOUNT=${ACCOUNT:-lab}
QOS=${QOS:-normal}
WITHIN=${WITHIN:-60}
NODE="node-1" # a script that pins its Pod to a node gives this another value

verdict="FAIL: the script ended before it had seen everything"
began=""
undo=""
seen=""
missing=""
for program in kubectl sbatch scancel scontrol sinfo squeue; do
    command -v "$program" >/dev/null || missing="$missing $program"
done

kubectl() {
    command kubectl --namespace "$NAMESPACE" "$@"
}

say() {
    printf '# %s\n' "$*"
}

pass() {
    verdict="PASS: $*"
    exit 0
}

fail() {
    verdict="FAIL: $(one_line "$*")"
    exit 1
}

skip() {
    verdict="SKIPPED: $(one_line "$*")"
    exit 77
}

# contains TEXT WORDS
contains() {
    case $1 in
        *"$2"*) ;;
        *) return 1 ;;
    esac
}

one_line() {
    printf '%s' "$*" | tr '\n' ' '
}

# How an example begins, and how it ends

# Ends the example where a cluster lacks what each of them needs, or has objects of its names already.
begin() {
    [ -z "$missing" ] || skip "not in PATH:$missing"
    own=$(command kubectl config view --minify -o 'jsonpath={..namespace}' 2>/dev/null) || own=""
    NAMESPACE=${NAMESPACE:-${own:-default}}
    seen=$(sinfo -h -o %P 2>&1) || fail "sinfo: $seen"
    PARTITION=${PARTITION:-$(printf '%s\n' "$seen" | sed -n 's/\*$//p')}
    [ -n "$PARTITION" ] || skip "Slurm has no default partition: set PARTITION"
    seen=$(kubectl get pods -o name 2>&1) || fail "kubectl get pods: $seen"
    there=$(left)
    [ -z "$there" ] ||
        fail "$there: of a run before this? kubectl -n $NAMESPACE delete -f examples/$EXAMPLE"
    the_extender_is_asked
    began=yes
}

# A Pod is tried, and not made.
the_extender_is_asked() {
    scheduler=$(adapted ../01-a-pod/pod.yaml |
        kubectl create --dry-run=server -o 'jsonpath={.spec.schedulerName}' -f - 2>&1) || {
        case $scheduler in
            *policy*) skip "the policy lets this Pod into no job: $scheduler" ;;
            *) fail "kubectl create: $scheduler" ;;
        esac
    }
    case $scheduler in
        *default-scheduler) skip "slurm-extender is not asked about Pods of namespace $NAMESPACE" ;;
    esac
}

# later COMMAND...: what takes back what was done; it is run at the end, the newest first.
later() {
    undo="$*
$undo"
}

# The newest of these commands is not needed any more.
taken_back() {
    undo=${undo#*
}
}

finish() {
    status=$?
    trap '' INT TERM HUP
    trap - EXIT
    set +e
    if [ -n "$began" ] && ! clean_up && [ "$status" -eq 0 ]; then
        status=1 verdict="FAIL: left behind: $(one_line "$(left)")"
    fi
    printf '%s\n' "$verdict"
    exit "$status"
}

# Takes back what was done, and says which command failed: a person has to do that.
take_back() {
    printf '%s\n' "$undo" | while IFS= read -r command; do
        [ -z "$command" ] || eval "$command" >/dev/null 2>&1 ||
            say "this failed, and is yours to do: $command"
    done
}

# Returns 1 where something is left.
clean_up() {
    take_back
    kubectl delete --ignore-not-found --timeout="${WITHIN}s" -f . >/dev/null 2>&1
    end=$(($(date +%s) + WITHIN))
    while [ -n "$(left)" ]; do
        [ "$(date +%s)" -lt "$end" ] || return 1
        pause
    done
}

# Prints what is there of the example, its objects, its Pods and its jobs; or why that is not known.
left() {
    objects
    pods=$(kubectl get pods -o name 2>&1) || printf 'kubectl get pods: %s\n' "$pods"
    jobs=$(squeue -h -a -o "job %i %j" 2>&1) || printf 'squeue: %s\n' "$jobs"
    printf '%s\n' "$pods" | grep "^pod/$NAME" || true
    printf '%s\n' "$jobs" | grep -E " $NAME(-native|[^ ]*@$NAMESPACE(#.*)?)\$" || true
}

# Prints which objects of the example's manifests there are.
objects() {
    for manifest in *.yaml; do
        [ ! -e "$manifest" ] || kubectl get --ignore-not-found -o name -f "$manifest" 2>/dev/null || true
    done
}

trap finish EXIT
trap 'fail interrupted' INT TERM HUP

# What a person does

# typed COMMAND...: prints it as one would type it.
typed() {
    printf '$'
    for word in "$@"; do
        case $word in
            *\'*) printf ' "%s"' "$word" ;;
            *[!A-Za-z0-9_./:=,@%+-]*) printf " '%s'" "$word" ;;
            *) printf ' %s' "$word" ;;
        esac
    done
    printf '\n'
}

# run COMMAND...: prints the command and what it prints; one that fails ends the example.
run() {
    typed "$@"
    said=$("$@" 2>&1) || {
        printf '%s\n' "$said"
        fail "$*: $said"
    }
    [ -z "$said" ] || printf '%s\n' "$said"
}

# apply FILE: makes what the manifest says, in this cluster's partition and with its images.
apply() {
    try_to_apply "$1" || fail "kubectl apply: $said"
}

# try_to_apply FILE: the same; what kubectl said is in $said, and it may have failed.
try_to_apply() {
    printf '$ kubectl apply -f %s\n' "$1"
    refused=""
    said=$(adapted "$1" | kubectl apply -f - 2>&1) || refused=yes
    printf '%s\n' "$said"
    [ -z "$refused" ]
}

# apply_or_skip FILE PATTERN WORDS: the same; a rejection with words like PATTERN means that the cluster
# lacks something.
apply_or_skip() {
    try_to_apply "$1" || {
        ! printf '%s\n' "$said" | grep -q "$2" || skip "$3"
        fail "kubectl apply: $said"
    }
}

# adapted FILE: prints a manifest with this cluster's names instead of those that are written.
adapted() {
    sed -e "s|partition: main|partition: $PARTITION|" \
        -e "s|partition: low|partition: $LOW|" \
        -e "s|partition: high|partition: $HIGH|" \
        -e "s|required-nodes: node-1|required-nodes: $NODE|" \
        -e "s|user-id: \"2001\"|user-id: \"$USER_ID\"|" \
        -e "s|account: lab|account: $ACCOUNT|" \
        -e "s|qos: normal|qos: $QOS|" \
        -e "s|image: busybox|image: $IMAGE|" \
        -e "s|image: mpioperator/mpi-pi:openmpi|image: $MPI_IMAGE|" \
        -e "s|nvidia.com/gpu|$GPU|" \
        -e "s|example.com/shard|$SHARD|" \
        -e "s|$DEFAULT_PREFIX|$PREFIX|" "$1"
}

# as_administrator COMMAND...: `run`; who may not do that to Slurm skips the example.
as_administrator() {
    typed "$@"
    said=$("$@" 2>&1) || {
        case $said in
            *ermission* | *"Invalid user"*) skip "you may not, in Slurm: $*: $said" ;;
            *) fail "$*: $said" ;;
        esac
    }
}

# native OPTION...: a native job, with these options of sbatch(1). Its id is $native then. Slurm would
# leave a file with its output.
native() {
    set -- sbatch --job-name="$NAME-native" --output=/dev/null "$@" --wrap "sleep 600"
    typed "$@"
    native=$("$@" --parsable 2>&1) || fail "sbatch: $native"
    native=${native%%;*}
    later scancel "$native"
    wait_for "native job $native runs" job_is "$native" RUNNING
}

# What a person sees

# look_at POD: reads $uid, $node, $phase, $job, and $reason and $message of the extender's condition; ""
# each where there is none of it.
look_at() {
    condition='.status.conditions[?(@.type=="slurm-extender.io/Placeholder")]'
    job_id='.metadata.annotations.slurm-extender\.io/job-id'
    fields="{.metadata.uid}|{.spec.nodeName}|{.status.phase}|{$job_id}"
    fields="$fields|{$condition.reason}|{$condition.message}"
    # shellcheck disable=SC2034 # scripts read them
    IFS='|' read -r uid node phase job reason message <<EOF_OF_POD
$(kubectl get pod "$1" --ignore-not-found -o jsonpath="$fields" 2>/dev/null)
EOF_OF_POD
    seen="it is ${phase:-not there}${message:+, and says: $message}"
}

# runs POD: waits until it runs. `look_at` has read it then, and $job runs on the node of the Pod's Node.
runs() {
    wait_for "Pod $1 runs" is_running "$1"
    [ -n "$job" ] || fail "Pod $1 runs on Node $node without a job in Slurm"
    of_slurm=$(slurm_node "$node")
    seen=$(squeue -h -j "$job" -o "%T %N" 2>&1)
    [ "$seen" = "RUNNING $of_slurm" ] ||
        fail "Pod $1 runs on Node $node, but squeue says of its job $job: $seen"
}

# show POD: prints it and its job, as both systems have them.
show() {
    columns=NAME:.metadata.name,STATUS:.status.phase,NODE:.spec.nodeName
    run kubectl get pod "$1" -o "custom-columns=$columns"
    look_at "$1"
    [ -z "$job" ] || run squeue -j "$job" -o "%i %j %T %N"
}

# pods_of LABEL: prints the names of the Pods that run and are not being deleted.
pods_of() {
    kubectl get pods -l "$1" -o go-template='{{range .items}}{{if not .metadata.deletionTimestamp}}{{if
        eq .status.phase "Running"}}{{.metadata.name}}{{"\n"}}{{end}}{{end}}{{end}}' 2>/dev/null
}

# slurm_node NODE: prints what Slurm calls it.
slurm_node() {
    label='.metadata.labels.slurm-extender\.io\.node-restriction\.kubernetes\.io/node'
    named=$(kubectl get node "$1" -o jsonpath="{$label}" 2>/dev/null) || named=""
    printf '%s\n' "${named:-$1}"
}

# kubernetes_node NODE: prints what Kubernetes calls a node of Slurm's.
kubernetes_node() {
    label="slurm-extender.io.node-restriction.kubernetes.io/node=$1"
    named=$(kubectl get nodes -l "$label" -o 'jsonpath={.items[*].metadata.name}') || named=""
    printf '%s\n' "${named:-$1}"
}

# idle_node PARTITION: has $NODE be a node of Slurm's that nobody uses, and $of_kubernetes its Node.
idle_node() {
    for NODE in $(sinfo -h -N -p "$1" -t idle -o %N | sort -u); do
        of_kubernetes=$(kubernetes_node "$NODE")
        is_open "$of_kubernetes" && return
    done
    skip "no node of partition $1 is idle"
}

# is_open NODE: Kubernetes has this Node, and it is not cordoned.
is_open() {
    closed=$(kubectl get node "$1" -o 'jsonpath={.spec.unschedulable}' 2>/dev/null) || return 1
    [ "$closed" != true ]
}

# alone JOB: on $NODE no other job runs, whose owner would lose it to a job that preempts.
alone() {
    others=$(squeue -h -a -t R -w "$NODE" -o %i 2>&1) || fail "squeue: $others"
    [ "$others" = "$1" ] || skip "others have jobs on $NODE by now: $others"
}

# needs_preemption: two partitions, of which $HIGH preempts $LOW.
needs_preemption() {
    scontrol show config | grep -q "^PreemptType.*partition_prio" ||
        skip "PreemptType is not preempt/partition_prio in slurm.conf"
    for each in "$LOW" "$HIGH"; do
        scontrol show partition "$each" >/dev/null 2>&1 ||
            skip "there is no partition $each: set LOW and HIGH"
    done
}

# end_containers POD: has a Pod's containers end where kwok plays the kubelet; elsewhere they end by
# themselves.
end_containers() {
    look_at "$1"
    of_kwok='.metadata.annotations.kwok\.x-k8s\.io/node'
    fake=$(kubectl get node "$node" -o jsonpath="{$of_kwok}" 2>/dev/null) || return 0
    [ "$fake" != fake ] ||
        kubectl annotate --overwrite pod "$1" local.slurm-extender.io/run-for=1 >/dev/null
}

pause() {
    sleep 0.2 2>/dev/null || sleep 1
}

# wait_for WHAT COMMAND...: until the command succeeds, for $WITHIN seconds.
wait_for() {
    what=$1
    shift
    seen=""
    deadline=$(($(date +%s) + WITHIN))
    until "$@"; do
        [ "$(date +%s)" -lt "$deadline" ] || fail "$what: not within $WITHIN s${seen:+: $seen}"
        pause
    done
}

# Conditions, for `wait_for`

# These two let kubectl wait for a second.
is_running() {
    kubectl wait --for=jsonpath='{.status.phase}'=Running --timeout=1s pod "$1" >/dev/null 2>&1 || true
    look_at "$1"
    [ -n "$node" ] && [ "$phase" = Running ]
}

# has_started POD: its containers run, or have run.
has_started() {
    look_at "$1"
    [ -n "$phase" ] && [ "$phase" != Pending ]
}

is_bound() {
    look_at "$1"
    [ -n "$node" ]
}

is_gone() {
    kubectl wait --for=delete --timeout=1s pod "$1" >/dev/null 2>&1 || true
    seen=$(kubectl get pod "$1" --ignore-not-found -o name 2>&1) && [ -z "$seen" ]
}

# waits_for POD REASON: one of the extender's reasons, or one of Slurm's. Of several (A|B) any.
waits_for() {
    look_at "$1"
    printf '%s\n' "$reason" | grep -q -x -E "$2"
}

# has_pod JOB: a Job of Kubernetes; its Pod is $pod then.
has_pod() {
    pod=$(kubectl get pods -l "job-name=$1" -o 'jsonpath={.items[*].metadata.name}')
    [ -n "$pod" ]
}

# is_complete JOB: a Job of Kubernetes.
is_complete() {
    seen="its conditions are: $(kubectl get job "$1" -o 'jsonpath={.status.conditions[*].type}')"
    contains "$seen" Complete
}

# job_is JOB STATE
job_is() {
    seen="squeue says: $(squeue -h -t all -j "$1" -o "%T %r" 2>&1)"
    [ "${seen#"squeue says: $2 "}" != "$seen" ]
}

# is_over JOB
is_over() {
    seen=$(squeue -h -j "$1" -o "%T %N" 2>&1) || {
        contains "$seen" "Invalid job id" # Slurm has forgotten it
        return
    }
    [ -z "$seen" ]
}

# has_comment JOB WORDS
has_comment() {
    seen="its comment is $(squeue -h -t all -j "$1" -o %k 2>&1)"
    contains "$seen" "$2"
}

# has_event UID REASON: an Event about that Pod; its message is $seen then.
has_event() {
    seen=$(kubectl get events --field-selector "involvedObject.uid=$1,reason=$2" \
        -o 'jsonpath={.items[*].message}' 2>&1) && [ -n "$seen" ]
}
