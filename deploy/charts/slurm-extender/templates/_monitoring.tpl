{{/* The project's own runbooks, as files/monitoring/rules.yaml names them. */}}
{{- define "slurm-extender.ownRunbooks" -}}
https://github.com/slurm-extender/slurm-extender/blob/main/docs/runbooks/
{{- end -}}

{{/* What stands before the name of an alert's page. */}}
{{- define "slurm-extender.runbooks" -}}
{{- default (include "slurm-extender.ownRunbooks" .) .Values.monitoring.runbookUrl | trimSuffix "/" }}/
{{- end -}}
