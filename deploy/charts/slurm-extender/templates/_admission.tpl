{{/* What the extender notes on Pods. A fixed list, since a Pod may have tens of thousands of annotations. */}}
{{- define "slurm-extender.bookkeeping" -}}
      ['slurm-extender.io/adopted-as', 'slurm-extender.io/attempt', 'slurm-extender.io/granted',
       'slurm-extender.io/job-id', 'slurm-extender.io/node',
       'slurm-extender.io/feasible-nodes', 'slurm-extender.io/capacity-freed']
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
