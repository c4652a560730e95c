{{/* What the extender notes on Pods. A fixed list, since a Pod may have tens of thousands of annotations. */}}
{{- define "slurm-extender.bookkeeping" -}}
      ['slurm-extender.io/adopted-as', 'slurm-extender.io/attempt', 'slurm-extender.io/granted',
       'slurm-extender.io/job-id', 'slurm-extender.io/node',
       'slurm-extender.io/feasible-nodes', 'slurm-extender.io/capacity-freed']
{{- end -}}

{{/*
Names of the fields that a write changes, except fields of others: [path, exceptions]. dyn(), so that fields are gone
through as there are, those of later releases too.
*/}}
{{- define "slurm-extender.changed" -}}
[[dyn(object.{{ index . 0 }}), dyn(oldObject.{{ index . 0 }})]].map(both,
          (both[0].map(key, key) + both[1].filter(key, !(key in both[0]))).filter(key,
            !(key in {{ index . 1 | trim }}) && both[0][?key] != both[1][?key]))[0]
{{- end -}}

{{/*
Whether entries of a map are changed, except entries of these keys: [path, exceptions]. CEL takes seconds to go through
tens of thousands of entries, which the author of a Pod may write: of more than 500, only the number is compared.
*/}}
{{- define "slurm-extender.entriesChanged" -}}
[[object, oldObject].map(each, each.{{ index . 0 }}.orValue({}))].exists(both, both[0] != both[1] && (
          both[0].size() - {{ index . 1 | trim }}.filter(key, key in both[0]).size() !=
            both[1].size() - {{ index . 1 | trim }}.filter(key, key in both[1]).size() ||
          (both[1].size() <= 500 &&
            both[1].exists(key, !(key in {{ index . 1 | trim }}) && both[0][?key] != optional.of(both[1][key])))))
{{- end -}}

{{/*
Whether elements of a list are changed, except those of which an expression has one of these values: [path, expression,
values].
*/}}
{{- define "slurm-extender.elementsChanged" -}}
[[object, oldObject].map(each, each.{{ index . 0 }}.orValue([]).filter(one, !({{ index . 1 }} in {{ index . 2 }})))
         ].exists(both, both[0].exists(one, !(one in both[1])) || both[1].exists(one, !(one in both[0])))
{{- end -}}

{{/* What each write changes of an object's metadata, and what is looked at by itself. */}}
{{- define "slurm-extender.metadataOfWrites" -}}
['annotations', 'generation', 'labels', 'managedFields', 'resourceVersion']
{{- end -}}

{{/*
What a program writes of a Node and is not the program's, by name: [annotations, taints, conditions], CEL's lists. Taints
as kubectl has them (KEY=VALUE:EFFECT): a taint NoExecute of the same key would evict Pods.
*/}}
{{- define "slurm-extender.othersOfNode" -}}
{{ include "slurm-extender.changed" (list "metadata" (include "slurm-extender.metadataOfWrites" .)) }} +
      ({{ include "slurm-extender.entriesChanged" (list "metadata.?annotations" (index . 0)) }} ? ['annotations'] : []) +
      (object.metadata.?labels == oldObject.metadata.?labels ? [] : ['labels']) +
      {{ include "slurm-extender.changed" (list "spec" "['taints']") }} +
      ({{ include "slurm-extender.elementsChanged" (list "spec.?taints" "one.key + '=' + one.?value.orValue('') + ':' + one.effect" (index . 1)) }} ? ['other taints'] : []) +
      {{ include "slurm-extender.changed" (list "status" "['conditions']") }} +
      ({{ include "slurm-extender.elementsChanged" (list "status.?conditions" "one.type" (index . 2)) }} ? ['other conditions'] : [])
{{- end -}}

{{/*
What the extender writes of a Pod and is not the extender's to write, by name. kube-scheduler beside it has the same
account, and writes what devices the Pod got. kube-apiserver copies the labels of a Node's zone to the Binding.
*/}}
{{- define "slurm-extender.notExtenders" -}}
{{- $bookkeeping := include "slurm-extender.bookkeeping" . -}}
{{- $status := list "conditions" "nominatedNodeName" -}}
{{- if and (eq .Values.scheduler.mode "own") (not .Values.extender.outside.enabled) -}}
{{- $status = concat $status (list "extendedResourceClaimStatus" "nodeAllocatableResourceClaimStatuses") -}}
{{- end -}}
(request.operation == 'DELETE'
       ? (oldObject.spec.schedulerName == '{{ include "slurm-extender.schedulerName" . }}' ? [] : ["another scheduler's Pod"])
       : request.kind.kind == 'Binding'
       ? (object.metadata.?annotations.orValue({}).all(key, key in {{ $bookkeeping | trim }}) ? [] : ['annotations']) +
         (object.metadata.?labels.orValue({}).all(key, key.startsWith('topology.kubernetes.io/')) ? [] : ['labels'])
       : oldObject == null
       ? ['a new Pod']
       : {{ include "slurm-extender.changed" (list "metadata" (include "slurm-extender.metadataOfWrites" .)) }} +
         ({{ include "slurm-extender.entriesChanged" (list "metadata.?annotations" $bookkeeping) }} ? ['annotations'] : []) +
         ({{ include "slurm-extender.entriesChanged" (list "metadata.?labels" "['slurm-extender.io/job-id']") }} ? ['labels'] : []) +
         (request.?subResource.orValue('') == 'status'
          ? {{ include "slurm-extender.changed" (list "status" ($status | toJson)) }} +
            ({{ include "slurm-extender.elementsChanged" (list "status.?conditions" "one.type" "['slurm-extender.io/Placeholder', 'PodScheduled', 'DisruptionTarget']") }} ? ['other conditions'] : [])
          : {{ include "slurm-extender.changed" (list "spec" "['schedulingGates']") }} +
            ([[object, oldObject].map(pod, pod.spec.?schedulingGates.orValue([])).map(gates,
                gates.size() + ({'name': 'slurm-extender.io/placeholder'} in gates ? 0 : 1))
             ].exists(others, others[0] != others[1]) ? ['other gates'] : [])))
{{- end -}}

{{/*
What a Pod requests of a resource before and after a change: of itself, else of the containers that run. Without
optMap, which does not compile on 1.31.
*/}}
{{- define "slurm-extender.requested" -}}
      [oldObject, object].map(pod,
        (pod.spec.?resources.?requests[?'{{ . }}'].hasValue()
          ? [pod.spec.?resources.?requests[?'{{ . }}'].value()]
          : (pod.spec.containers + pod.spec.?initContainers.orValue([]).filter(
               one, one.?restartPolicy.orValue('') == 'Always')
            ).map(one, one.?resources.?requests[?'{{ . }}'].orValue('0'))
        ).map(amount, quantity(amount).asApproximateFloat()).sum())
{{- end -}}

{{/* How a Pod asks for Slurm: by its scheduler, or by an annotation if the Pod names no scheduler. */}}
{{- define "slurm-extender.asksForSlurm" -}}
      object.spec.schedulerName in {{ include "slurm-extender.schedulers" . }} ||
      (object.spec.schedulerName == 'default-scheduler' && has(object.metadata.annotations) &&
       object.metadata.annotations.exists(key, {{ include "slurm-extender.asksByAnnotation" . }}))
{{- end -}}

{{/* The names of the extender's scheduler and of the schedulers that are taken over (TAKE_SCHEDULERS), as CEL's list. */}}
{{- define "slurm-extender.schedulers" -}}
{{- $settings := .Values.extender.settings -}}
{{- $given := default (default list $settings.TAKE_SCHEDULERS) $settings.takeSchedulers -}}
{{- $names := list (include "slurm-extender.schedulerName" .) -}}
{{- range kindIs "string" $given | ternary (splitList "," (toString $given)) $given -}}
{{- with trim . }}{{ $names = append $names . }}{{ end -}}
{{- end -}}
{{- if has "default-scheduler" $names -}}
{{- fail "extender.settings.takeSchedulers: default-scheduler cannot be taken over; label Namespaces with slurm-extender.io/every-pod=true instead" -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{/* How an annotation of that key asks for Slurm. */}}
{{- define "slurm-extender.asksByAnnotation" -}}
key.startsWith('{{ include "slurm-extender.annotationPrefix" . }}')
{{- if include "slurm-extender.readsSlurmBridge" . }} || {{ include "slurm-extender.isSlurmBridges" . }}{{ end -}}
{{- end -}}

{{/* Whether Pods that other schedulers bound get jobs. */}}
{{- define "slurm-extender.adopts" -}}
{{- with .Values.extender.settings -}}
{{- if eq "adopt" (default (default "" .UNMANAGED_PODS) .unmanagedPods) }}true{{ end -}}
{{- end -}}
{{- end -}}

{{/* Whether slurm-bridge's annotations are read. */}}
{{- define "slurm-extender.readsSlurmBridge" -}}
{{- with .Values.extender.settings -}}
{{- if or .slurmBridgeAnnotations .SLURM_BRIDGE_ANNOTATIONS }}true{{ end -}}
{{- end -}}
{{- end -}}

{{/* Whether an annotation of that key is slurm-bridge's: under its prefix, or under the prefix before its 1.0. */}}
{{- define "slurm-extender.isSlurmBridges" -}}
key.startsWith('slurmjob.slinky.slurm.net/') || (key.startsWith('slinky.slurm.net/') && key.substring(17) in
        ['account', 'constraints', 'cpu-per-task', 'exclusive', 'gres', 'group-id', 'job-name', 'licenses', 'max-nodes',
         'mem-per-node', 'min-nodes', 'partition', 'priority', 'qos', 'reservation', 'timelimit', 'user-id', 'wckey'])
{{- end -}}

{{- define "slurm-extender.annotationPrefix" -}}
{{- default (default "sunk.coreweave.com/" .Values.extender.settings.ANNOTATION_PREFIX) .Values.extender.settings.annotationPrefix -}}
{{- end -}}

{{/* How kube-apiserver reaches a webhook: [root, path]. The replicas write an authority of their own by themselves. */}}
{{- define "slurm-extender.at" -}}
{{- $root := index . 0 -}}{{- $path := index . 1 -}}
{{- if $root.Values.extender.outside.enabled }}
url: {{ required "extender.outside.url: the address at which kube-apiserver finds the webhooks" $root.Values.extender.outside.url | trimSuffix "/" }}{{ $path }}
{{- else }}
service:
  name: {{ include "slurm-extender.fullname" $root }}
  namespace: {{ $root.Release.Namespace }}
  path: {{ $path }}
  port: 443
{{- end }}
{{- if and (eq $root.Values.webhooks.certificates.mode "secret") $root.Values.webhooks.certificates.caBundle }}
caBundle: {{ $root.Values.webhooks.certificates.caBundle }}
{{- end }}
{{- end -}}

{{- define "slurm-extender.webhookMetadata" -}}
name: {{ include "slurm-extender.fullname" . }}
labels: {{- include "slurm-extender.labels" . | nindent 2 }}
{{- if eq .Values.webhooks.certificates.mode "certManager" }}
annotations:
  cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/{{ include "slurm-extender.fullname" . }}-webhooks
{{- end }}
{{- end -}}
