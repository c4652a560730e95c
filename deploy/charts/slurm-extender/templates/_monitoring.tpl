{{/* The address of the project's own runbooks, as in files/monitoring/rules.yaml. */}}
{{- define "slurm-extender.ownRunbooks" -}}
https://github.com/slurm-extender/slurm-extender/blob/main/docs/troubleshooting/runbooks/
{{- end -}}

{{/* The address of the folder with the runbooks. The name of an alert's page comes after it. */}}
{{- define "slurm-extender.runbooks" -}}
{{- default (include "slurm-extender.ownRunbooks" .) .Values.monitoring.runbookUrl | trimSuffix "/" }}/
{{- end -}}

{{/* Notes for the user about metrics that the rules need, but that these values do not collect. */}}
{{- define "slurm-extender.monitoringNotes" -}}
{{- $monitoring := .Values.monitoring -}}
{{- if and $monitoring.rules.enabled (not $monitoring.serviceMonitor.enabled) (not .Values.extender.outside.enabled) }}

The alerts need the extender's metrics, but monitoring.serviceMonitor is off. If no other job of Prometheus reads these
metrics (port metrics of the Service {{ include "slurm-extender.fullname" . }}), the alert SlurmExtenderNoLeader fires.
{{- end }}
{{- if and $monitoring.rules.enabled .Values.nodeAgent.enabled (not .Values.nodeAgent.outside.enabled) (not $monitoring.podMonitor.enabled) }}

monitoring.podMonitor is off. So no alert reports Nodes without active limits, or failed devices. Enable
monitoring.podMonitor, or let another job of Prometheus read port metrics of the Pods
{{ include "slurm-extender.agentName" . }}.
{{- end }}
{{- end -}}

{{/* The PromQL matchers that select the metrics of this release, for the rules of this release. */}}
{{- define "slurm-extender.rulesSelector" -}}
{{- if .Values.monitoring.rules.selector -}}
{{- .Values.monitoring.rules.selector -}}
{{- else if .Values.extender.outside.enabled -}}
namespace=~".*"
{{- else -}}
namespace="{{ .Release.Namespace }}"
{{- end -}}
{{- end -}}

{{/*
The rules for this release. The rules in files/monitoring/rules.yaml match every release, and link to the project's own
runbooks. This template replaces both.
*/}}
{{- define "slurm-extender.rules" -}}
{{- .Files.Get "files/monitoring/rules.yaml"
  | replace (include "slurm-extender.ownRunbooks" .) (include "slurm-extender.runbooks" .)
  | replace "namespace=~\".*\"" (include "slurm-extender.rulesSelector" .)
  | replace "cluster=~\".*\"" (default "cluster=~\".*\"" .Values.monitoring.rules.kubeApiServerSelector)
-}}
{{- end -}}
