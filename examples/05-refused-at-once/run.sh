#!/bin/sh
# shellcheck source=../steps.sh
set -eu
cd "$(dirname "$0")"
. ../steps.sh

begin

say "kube-apiserver rejects a Pod with mistakes, and names all of them."
! try_to_apply pod.yaml || fail "the Pod was made all the same"
for word in "${PREFIX}partiton" "${PREFIX}timeout" cpu; do
    contains "$said" "$word" || fail "kubectl apply says nothing of $word: $said"
done

say "The author of a template gets a warning."
apply deployment.yaml
contains "$said" Warning || fail "kubectl apply of the Deployment warned of nothing: $said"
contains "$said" "${PREFIX}timeout" || fail "kubectl apply does not warn of the time limit: $said"

pass "kubectl apply named all three mistakes of the Pod, and warned of the Deployment's"
