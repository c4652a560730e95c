{{/*
The namespaces in scope, one on each line. An empty text means all namespaces. As in SUNK, a blank list in the values means
the release's namespace.
*/}}
{{- define "slurm-extender.namespaces" -}}
{{- if eq .Values.scheduler.scope.type "namespace" -}}
{{- $given := .Values.scheduler.scope.namespaces -}}
{{- $names := kindIs "string" $given | ternary (splitList "," (toString $given)) $given -}}
{{- $kept := list -}}
{{- range $names }}{{ with trim . }}{{ $kept = append $kept . }}{{ end }}{{ end -}}
{{- join "\n" (default (list .Release.Namespace) $kept | uniq) -}}
{{- end -}}
{{- end -}}

{{/* The text for SLURM_EXTENDER_POD_SELECTOR, made from the label selector scheduler.podSelector. */}}
{{- define "slurm-extender.podSelector" -}}
{{- $parts := list -}}
{{- range $key, $value := .Values.scheduler.podSelector.matchLabels -}}
{{- $parts = append $parts (printf "%s=%s" $key $value) -}}
{{- end -}}
{{- range .Values.scheduler.podSelector.matchExpressions -}}
{{- if eq .operator "Exists" -}}{{- $parts = append $parts .key -}}
{{- else if eq .operator "DoesNotExist" -}}{{- $parts = append $parts (printf "!%s" .key) -}}
{{- else -}}{{- $parts = append $parts (printf "%s %s (%s)" .key (lower .operator) (join "," .values)) -}}
{{- end -}}
{{- end -}}
{{- join "," $parts -}}
{{- end -}}

{{/*
The selectors of a webhook or a policy, so that kube-apiserver calls it only for objects in scope (SLURM_EXTENDER_SCOPE):
[root, pods, everyPod]. `pods` is true if the objects are Pods. scheduler.podSelector applies only to Pods, because it
selects by labels of Pods. `everyPod` selects Namespaces by the label slurm-extender.io/every-pod: "In" means Namespaces
with the label, "NotIn" means all other Namespaces, and "" means all Namespaces.
*/}}
{{- define "slurm-extender.inScope" -}}
{{- $root := index . 0 -}}{{- $pods := index . 1 -}}{{- $everyPod := index . 2 -}}
{{- $namespaces := include "slurm-extender.namespaces" $root -}}
{{- if or $namespaces $everyPod }}
namespaceSelector:
  matchExpressions:
  {{- with $namespaces }}
  - {key: kubernetes.io/metadata.name, operator: In, values: [{{ . | splitList "\n" | join ", " }}]}
  {{- end }}
  {{- with $everyPod }}
  - {key: slurm-extender.io/every-pod, operator: {{ . }}, values: ["true"]}
  {{- end }}
  {{- if eq $everyPod "In" }}
  {{- $own := $root.Values.extender.outside.enabled | ternary (list) (list $root.Release.Namespace) }}
  # These Namespaces are excluded even with the label: the cluster's own Pods need no Slurm, and the extender's own Pods
  # could not start while no extender runs.
  - {key: kubernetes.io/metadata.name, operator: NotIn, values: [{{ prepend $own "kube-system" | uniq | join ", " }}]}
  {{- end }}
{{- end }}
{{- if and $pods $root.Values.scheduler.podSelector }}
objectSelector: {{- toYaml $root.Values.scheduler.podSelector | nindent 2 }}
{{- end }}
{{- end -}}
