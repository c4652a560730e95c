#!/bin/sh
# Runs the examples one after the other, and prints a table of what each of them says.
#
#     ./run-all.sh              all
#     ./run-all.sh 01 06        some
#     VERBOSE=1 ./run-all.sh    with all that they print; else that is printed where one FAILs
#
# Exit status 1: at least one says FAIL. What an example takes from the environment is in README.md.
set -eu
cd "$(dirname "$0")"

# chosen EXAMPLE [NUMBER...]: whether it is one of these; of none, all are.
chosen() {
    example=$1
    shift
    [ $# -gt 0 ] || return 0
    for number in "$@"; do
        case $example in "$number"-*) return 0 ;; esac
    done
    return 1
}

# run_one EXAMPLE: its line of the table is printed, and $result is PASS, FAIL or SKIPPED.
run_one() {
    began=$(date +%s)
    printed=$("./$1/run.sh" 2>&1) || true
    last=$(printf '%s\n' "$printed" | tail -n 1)
    result=${last%%:*}
    case $result in PASS | FAIL | SKIPPED) ;; *) result=FAIL ;; esac
    [ -z "${VERBOSE:-}" ] || printf '%s\n' "$printed"
    printf '%-24s %-8s %4d s  %s\n' "$1" "$result" $(($(date +%s) - began)) "${last#*: }"
    if [ "$result" = FAIL ] && [ -z "${VERBOSE:-}" ]; then
        printf '%s\n' "$printed" | sed 's/^/    /'
    fi
}

passed=0 failed=0 skipped=0
for folder in [0-9]*/; do
    chosen "${folder%/}" "$@" || continue
    run_one "${folder%/}"
    case $result in
        PASS) passed=$((passed + 1)) ;;
        FAIL) failed=$((failed + 1)) ;;
        SKIPPED) skipped=$((skipped + 1)) ;;
    esac
done
printf '%s passed, %s failed, %s skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ]
