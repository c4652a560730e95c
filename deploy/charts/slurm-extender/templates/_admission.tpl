{{/*
The annotations that the extender writes on Pods, as a CEL list. The list is fixed, because a Pod may have tens of
thousands of other annotations, and CEL would search all of them.
*/}}
{{- define "slurm-extender.bookkeeping" -}}
      ['slurm-extender.io/adopted-as', 'slurm-extender.io/attempt', 'slurm-extender.io/granted',
       'slurm-extender.io/job-id', 'slurm-extender.io/node', 'slurm-extender.io/rank',
       'slurm-extender.io/feasible-nodes', 'slurm-extender.io/capacity-freed']
{{- end -}}

{{/*
The names of the fields that a write changes below a path, without the exceptions: [path, exceptions]. With dyn(), CEL goes
through all fields that the object has, also through fields of later Kubernetes releases.
*/}}
{{- define "slurm-extender.changed" -}}
[[dyn(object.{{ index . 0 }}), dyn(oldObject.{{ index . 0 }})]].map(both,
          (both[0].map(key, key) + both[1].filter(key, !(key in both[0]))).filter(key,
            !(key in {{ index . 1 | trim }}) && both[0][?key] != both[1][?key]))[0]
{{- end -}}

{{/*
True if a write changes entries of a map: [path, exceptions]. Entries with a key in the exceptions are ignored. The author
of a Pod may write tens of thousands of entries, and CEL needs seconds to compare so many. So if the map had more than 500
entries, only the number of entries is compared.
*/}}
{{- define "slurm-extender.entriesChanged" -}}
[[object, oldObject].map(each, each.{{ index . 0 }}.orValue({}))].exists(both, both[0] != both[1] && (
          both[0].size() - {{ index . 1 | trim }}.filter(key, key in both[0]).size() !=
            both[1].size() - {{ index . 1 | trim }}.filter(key, key in both[1]).size() ||
          (both[1].size() <= 500 &&
            both[1].exists(key, !(key in {{ index . 1 | trim }}) && both[0][?key] != optional.of(both[1][key])))))
{{- end -}}

{{/*
True if a write changes elements of a list: [path, expression, values]. An element is ignored if the expression has one of
the values for this element.
*/}}
{{- define "slurm-extender.elementsChanged" -}}
[[object, oldObject].map(each, each.{{ index . 0 }}.orValue([]).filter(one, !({{ index . 1 }} in {{ index . 2 }})))
         ].exists(both, both[0].exists(one, !(one in both[1])) || both[1].exists(one, !(one in both[0])))
{{- end -}}

{{/*
The fields of an object's metadata that `changed` must ignore. Every write may change some of them. Other expressions check
the annotations and the labels.
*/}}
{{- define "slurm-extender.metadataOfWrites" -}}
['annotations', 'generation', 'labels', 'managedFields', 'resourceVersion']
{{- end -}}

{{/*
The names of the parts of a Node that a program writes although they are not the program's own: [annotations, taints,
conditions]. These arguments are CEL lists of the program's own parts. A taint has kubectl's format (KEY=VALUE:EFFECT),
because a taint with the same key and the effect NoExecute would evict Pods.
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
The names of the parts of a Pod that the extender writes although they are not the extender's own. kube-scheduler beside
the extender has the same account, and writes the Pod's devices into the status. kube-apiserver copies the zone labels of a
Node to the Binding.
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
A list of two numbers: a Pod's request of a resource before and after a change. If the Pod itself has no request, the
requests of its containers and sidecars are added up. The expression does not use optMap, because optMap does not compile on
Kubernetes 1.31.
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

{{/* True if a Pod asks for Slurm: with its scheduler's name or, if the Pod names no scheduler, with an annotation. */}}
{{- define "slurm-extender.asksForSlurm" -}}
      object.spec.schedulerName in {{ include "slurm-extender.schedulers" . }} ||
      (object.spec.schedulerName == 'default-scheduler' && has(object.metadata.annotations) &&
       object.metadata.annotations.exists(key, {{ include "slurm-extender.asksByAnnotation" . }}))
{{- end -}}

{{/* True if the Pods of a Deployment, a Job or a similar object ask for Slurm, in the same ways. */}}
{{- define "slurm-extender.templateAsksForSlurm" -}}
      object.spec.template.spec.schedulerName in {{ include "slurm-extender.schedulers" . }} ||
      (object.spec.template.spec.schedulerName == 'default-scheduler' &&
       object.spec.template.?metadata.?annotations.orValue({}).exists(
         key, {{ include "slurm-extender.asksByAnnotation" . }}))
{{- end -}}

{{/* `true` if Jobs are gangs by default, otherwise empty. */}}
{{- define "slurm-extender.gangsByDefault" -}}
{{- with .Values.extender.settings -}}
{{- if eq "true" (toString (or .gangsByDefault .GANGS_BY_DEFAULT)) }}true{{ end -}}
{{- end -}}
{{- end -}}

{{/*
True if a write changes the gang of a Pod. The labels and annotations of the controllers count only for a Pod of a gang.
extender/pod_request/gang.py has the same names.
*/}}
{{- define "slurm-extender.changesGang" -}}
{{- $prefix := include "slurm-extender.annotationPrefix" . -}}
(oldObject != null && object.spec.schedulerName == '{{ include "slurm-extender.schedulerName" . }}' &&
       (['{{ $prefix }}gang', '{{ $prefix }}gang-size', '{{ $prefix }}members-per-node'].exists(key,
          object.metadata.?annotations[?key] != oldObject.metadata.?annotations[?key]) ||
        (oldObject.metadata.?annotations[?'{{ $prefix }}gang'].hasValue() &&
         (['leaderworkerset.sigs.k8s.io/leader-name', 'leaderworkerset.sigs.k8s.io/size'].exists(key,
            object.metadata.?annotations[?key] != oldObject.metadata.?annotations[?key]) ||
          ['batch.kubernetes.io/controller-uid', 'batch.kubernetes.io/job-name', 'jobset.sigs.k8s.io/jobset-name',
           'jobset.sigs.k8s.io/jobset-uid', 'jobset.sigs.k8s.io/restart-attempt', 'leaderworkerset.sigs.k8s.io/name',
           'scheduling.x-k8s.io/pod-group'].exists(key,
            object.metadata.?labels[?key] != oldObject.metadata.?labels[?key])))))
{{- end -}}

{{/*
A CEL list of scheduler names: the extender's own, and the names in TAKE_SCHEDULERS. The extender takes over the Pods with
these names.
*/}}
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

{{/* A CEL condition on the variable `key`: an annotation with this key asks for Slurm. */}}
{{- define "slurm-extender.asksByAnnotation" -}}
key.startsWith('{{ include "slurm-extender.annotationPrefix" . }}')
{{- if include "slurm-extender.readsSlurmBridge" . }} || {{ include "slurm-extender.isSlurmBridges" . }}{{ end -}}
{{- end -}}

{{/* `true` if Pods that other schedulers have bound get jobs, otherwise empty. */}}
{{- define "slurm-extender.adopts" -}}
{{- with .Values.extender.settings -}}
{{- if eq "adopt" (default (default "" .UNMANAGED_PODS) .unmanagedPods) }}true{{ end -}}
{{- end -}}
{{- end -}}

{{/* `true` if the extender reads the annotations of slurm-bridge, otherwise empty. */}}
{{- define "slurm-extender.readsSlurmBridge" -}}
{{- with .Values.extender.settings -}}
{{- if or .slurmBridgeAnnotations .SLURM_BRIDGE_ANNOTATIONS }}true{{ end -}}
{{- end -}}
{{- end -}}

{{/*
A CEL condition on the variable `key`: an annotation with this key belongs to slurm-bridge. The second prefix is the prefix
before slurm-bridge 1.0.
*/}}
{{- define "slurm-extender.isSlurmBridges" -}}
key.startsWith('slurmjob.slinky.slurm.net/') || (key.startsWith('slinky.slurm.net/') && key.substring(17) in
        ['account', 'constraints', 'cpu-per-task', 'exclusive', 'gres', 'group-id', 'job-name', 'licenses', 'max-nodes',
         'mem-per-node', 'min-nodes', 'partition', 'priority', 'qos', 'reservation', 'timelimit', 'user-id', 'wckey'])
{{- end -}}

{{- define "slurm-extender.annotationPrefix" -}}
{{- default (default "sunk.coreweave.com/" .Values.extender.settings.ANNOTATION_PREFIX) .Values.extender.settings.annotationPrefix -}}
{{- end -}}

{{/*
The clientConfig of a webhook, with which kube-apiserver calls the webhook: [root, path]. If the replicas create the
certificate (selfManaged), the replicas also write caBundle.
*/}}
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
