{{/* Namespaces in scope, one a line; none: all. As SUNK has it, a blank list is the release's own. */}}
{{- define "slurm-extender.namespaces" -}}
{{- if eq .Values.scheduler.scope.type "namespace" -}}
{{- $given := .Values.scheduler.scope.namespaces -}}
{{- $names := kindIs "string" $given | ternary (splitList "," (toString $given)) $given -}}
{{- $kept := list -}}
{{- range $names }}{{ with trim . }}{{ $kept = append $kept . }}{{ end }}{{ end -}}
{{- join "\n" (default (list .Release.Namespace) $kept | uniq) -}}
{{- end -}}
{{- end -}}

{{/* SLURM_EXTENDER_POD_SELECTOR of a label selector as objects have it. */}}
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
Whose Pods a webhook is asked about: SLURM_EXTENDER_SCOPE. [root, whether it is about Pods, and of which
Namespaces: "" all, "In" those of which every Pod goes to Slurm, "NotIn" the others]. Labels are the Pods' own, so only
they can be selected by them.
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
  # Whoever may label it: the cluster's own Pods need no Slurm, and without an extender there would be no extender's.
  - {key: kubernetes.io/metadata.name, operator: NotIn, values: [{{ prepend $own "kube-system" | uniq | join ", " }}]}
  {{- end }}
{{- end }}
{{- if and $pods $root.Values.scheduler.podSelector }}
objectSelector: {{- toYaml $root.Values.scheduler.podSelector | nindent 2 }}
{{- end }}
{{- end -}}
