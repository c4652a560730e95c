{{/*
Rejects values that would have no effect, and names the value that prevents the effect. The schema already rejects invalid
values. Each key of `$useless` is a message, which Helm prints if the condition after it is true.
*/}}
{{- define "slurm-extender.refused" -}}
{{- $outside := .Values.extender.outside -}}
{{- $agents := .Values.nodeAgent -}}
{{- $agentPods := and $agents.enabled (not $agents.outside.enabled) -}}
{{- $uninstall := .Values.uninstall -}}
{{- $hooks := .Values.hooks -}}
{{- $monitoring := .Values.monitoring -}}
{{- $existing := eq .Values.scheduler.mode "existing" -}}
{{- $secure := hasPrefix "https:" .Values.slurm.restUrl -}}
{{- $useless := dict
  "nodeAgent.outside.enabled: there are no node agents, since nodeAgent.enabled is false"
    (and $agents.outside.enabled (not $agents.enabled))
  "monitoring.podMonitor.enabled: there are no Pods of node agents (nodeAgent.enabled, nodeAgent.outside.enabled)"
    (and $monitoring.podMonitor.enabled (not $agentPods))
  "monitoring.serviceMonitor.enabled: an extender outside of the cluster has no Service (extender.outside.enabled)"
    (and $monitoring.serviceMonitor.enabled $outside.enabled)
  "extender.outside.url: the extender runs in Pods, since extender.outside.enabled is false"
    (and $outside.url (not $outside.enabled))
  "uninstall: an extender outside of the cluster has no Job for it; run `slurm-extender uninstall` (extender.outside.enabled)"
    (and $outside.enabled (or (ne $uninstall.gates "keep") (ne $uninstall.jobs "keep")))
  "hooks.enabled: an extender outside of the cluster has this in its environment, SLURM_EXTENDER_HOOKS_TOKEN_FILE (extender.outside.enabled)"
    (and $outside.enabled $hooks.enabled)
  "hooks.tokenSecret.name: nothing is pushed, since hooks.enabled is false"
    (and $hooks.tokenSecret.name (not $hooks.enabled))
  "hooks.hostPort: nothing listens there, since hooks.enabled is false"
    (and $hooks.hostPort (not $hooks.enabled))
  "hooks.service: there is none, since hooks.enabled is false"
    (and (or (ne $hooks.service.type "ClusterIP") $hooks.service.annotations) (not $hooks.enabled))
  "scheduler.featureGates: the kube-scheduler of scheduler.mode `existing` has its own"
    (and .Values.scheduler.featureGates $existing)
  "slurm.caSecret.name: slurmrestd has no certificate, since slurm.restUrl is not https"
    (and .Values.slurm.caSecret.name (not $secure))
-}}
{{- $words := list -}}
{{- range $why, $is := $useless }}{{ if $is }}{{ $words = append $words $why }}{{ end }}{{ end -}}
{{- if $words }}{{ $words | sortAlpha | join "; " | fail }}{{ end -}}
{{- end -}}
