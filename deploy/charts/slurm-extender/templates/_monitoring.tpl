{{/* The project's own runbooks, as files/monitoring/rules.yaml names them. */}}
{{- define "slurm-extender.ownRunbooks" -}}
https://github.com/slurm-extender/slurm-extender/blob/main/docs/runbooks/
{{- end -}}

{{/* What stands before the name of an alert's page. */}}
{{- define "slurm-extender.runbooks" -}}
{{- default (include "slurm-extender.ownRunbooks" .) .Values.monitoring.runbookUrl | trimSuffix "/" }}/
{{- end -}}

{{/* The matchers of this release's metrics in its rules. */}}
{{- define "slurm-extender.rulesSelector" -}}
{{- if .Values.monitoring.rules.selector -}}
{{- .Values.monitoring.rules.selector -}}
{{- else if .Values.extender.outside.enabled -}}
namespace=~".*"
{{- else -}}
namespace="{{ .Release.Namespace }}"
{{- end -}}
{{- end -}}

{{/* The rules, as files/monitoring/rules.yaml has them for every release and the project's own runbooks. */}}
{{- define "slurm-extender.rules" -}}
{{- .Files.Get "files/monitoring/rules.yaml"
  | replace (include "slurm-extender.ownRunbooks" .) (include "slurm-extender.runbooks" .)
  | replace "namespace=~\".*\"" (include "slurm-extender.rulesSelector" .)
  | replace "cluster=~\".*\"" (default "cluster=~\".*\"" .Values.monitoring.rules.kubeApiServerSelector)
-}}
{{- end -}}
