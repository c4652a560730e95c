#!/bin/sh
# shellcheck source=../steps.sh
set -eu
cd "$(dirname "$0")"
. ../steps.sh

begin

say "A Pod with mistakes is not made, and all of them are told."
! try_to_apply pod.yaml || fail "the Pod was made all the same"
for word in "${PREFIX}partiton" "${PREFIX}timeout" cpu; do
    contains "$said" "$word" || fail "kubectl apply says nothing of $word: $said"
done

say "The author of a template is warned."
apply deployment.yaml
contains "$said" Warning || fail "kubectl apply of the Deployment warned of nothing: $said"
contains "$said" "${PREFIX}timeout" || fail "kubectl apply does not warn of the time limit: $said"

pass "kubectl apply named all three mistakes of the Pod, and warned of the Deployment's"
