{{/* The project's own runbooks, as files/monitoring/rules.yaml names them. */}}
{{- define "slurm-extender.ownRunbooks" -}}
https://github.com/slurm-extender/slurm-extender/blob/main/docs/troubleshooting/runbooks/
{{- end -}}

{{/* What stands before the name of an alert's page. */}}
{{- define "slurm-extender.runbooks" -}}
{{- default (include "slurm-extender.ownRunbooks" .) .Values.monitoring.runbookUrl | trimSuffix "/" }}/
{{- end -}}

{{/* What the rules cannot see by these values. */}}
{{- define "slurm-extender.monitoringNotes" -}}
{{- $monitoring := .Values.monitoring -}}
{{- if and $monitoring.rules.enabled (not $monitoring.serviceMonitor.enabled) (not .Values.extender.outside.enabled) }}

The alerts go by the extender's metrics, and monitoring.serviceMonitor is off: unless another job of Prometheus reads them
(port metrics of the Service {{ include "slurm-extender.fullname" . }}), SlurmExtenderNoLeader fires.
{{- end }}
{{- if and $monitoring.rules.enabled .Values.nodeAgent.enabled (not .Values.nodeAgent.outside.enabled) (not $monitoring.podMonitor.enabled) }}

Nobody is told where limits are not in force on a Node, or devices have failed: monitoring.podMonitor is off. Set it, or have
another job of Prometheus read port metrics of the Pods {{ include "slurm-extender.agentName" . }}.
{{- end }}
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
