{{- define "slurm-extender.tlsSecret" -}}
{{- default (printf "%s-webhooks" (include "slurm-extender.fullname" .)) .Values.webhooks.certificates.secretName -}}
{{- end -}}

{{/*
The host names at which the extender is called, one on each line: the name of the webhooks' Service, and the host in the URL
for an existing kube-scheduler.
*/}}
{{- define "slurm-extender.tlsNames" -}}
{{ include "slurm-extender.fullname" . }}.{{ .Release.Namespace }}.svc
{{- if .Values.scheduler.existing.url }}
{{ (urlParse .Values.scheduler.existing.url).hostname }}
{{- end }}
{{- end -}}

{{/* KillWait in seconds, without a unit: values in the format of SUNK have "30s". */}}
{{- define "slurm-extender.killWait" -}}
{{- with .Values.slurmKillWait -}}{{- toString . | trimSuffix "s" -}}{{- end -}}
{{- end -}}

{{/* `true` if a kube-scheduler outside of the extender's Pod calls the extender, otherwise empty. */}}
{{- define "slurm-extender.calledFromElsewhere" -}}
{{- if eq .Values.scheduler.mode "existing" -}}true{{- end -}}
{{- end -}}

{{/*
The extender's settings that the chart derives from other values, as JSON: the names of environment variables without
SLURM_EXTENDER_, and their values. All other settings are in `extender.settings`.
*/}}
{{- define "slurm-extender.made" -}}
{{- $made := dict
  "SLURMRESTD_URL" (required "slurm.restUrl: slurmrestd's address, http://HOST:PORT" .Values.slurm.restUrl)
  "SLURM_TOKEN_FILE" "/etc/slurm-extender/slurm-token/token"
  "POLICY_FILE" "/etc/slurm-extender/policy/policy.yaml"
  "SCOPE" (include "slurm-extender.namespaces" . | splitList "\n" | join "," | default "cluster")
  "SCHEDULER_NAME" (include "slurm-extender.schedulerName" .)
  "GRES" (toJson .Values.gpuTypes)
  "WEBHOOK_CONFIGURATION" (include "slurm-extender.fullname" .)
  "TLS_NAMES" (include "slurm-extender.tlsNames" . | splitList "\n" | join ",")
-}}
{{- with include "slurm-extender.podSelector" . }}{{ $_ := set $made "POD_SELECTOR" . }}{{ end -}}
{{- with include "slurm-extender.killWait" . }}{{ $_ := set $made "KILL_WAIT_S" . }}{{ end -}}
{{- if eq .Values.webhooks.certificates.mode "selfManaged" -}}
{{- $_ := set $made "TLS_SECRET" (include "slurm-extender.tlsSecret" .) -}}
{{- else -}}
{{- $_ := set $made "TLS_CERT_FILE" "/etc/slurm-extender/tls/tls.crt" -}}
{{- $_ := set $made "TLS_KEY_FILE" "/etc/slurm-extender/tls/tls.key" -}}
{{- end -}}
{{- if .Values.webhooks.certificates.clientCASecret.name -}}
{{- $_ := set $made "ADMISSION_CLIENT_CA_FILE" "/etc/slurm-extender/admission-callers/ca.crt" -}}
{{- end -}}
{{- if include "slurm-extender.calledFromElsewhere" . -}}
{{- $_ := set $made "SCHEDULER_ADDRESS" "0.0.0.0" -}}
{{- $_ := set $made "SCHEDULER_CLIENT_CA_FILE" "/etc/slurm-extender/scheduler-callers/ca.crt" -}}
{{- end -}}
{{- if .Values.hooks.enabled }}{{ $_ := set $made "HOOKS_TOKEN_FILE" "/etc/slurm-extender/hooks-token/token" }}{{ end -}}
{{- if .Values.pools.enabled -}}
{{- $_ := set $made "POOLS_FILE" "/etc/slurm-extender/pools/pools.yaml" -}}
{{- $_ := set $made "POOLS_NAMESPACE" .Values.pools.namespace -}}
{{- end -}}
{{- if eq .Values.scheduler.mode "own" }}{{ $_ := set $made "SCHEDULER_CONFIG_FILE" "/etc/slurm-extender/kube-scheduler/config.yaml" }}{{ end -}}
{{- toJson $made -}}
{{- end -}}

{{/* The environment of a container: [prefix, variables]. camelCase and UPPER_CASE name the same setting. */}}
{{- define "slurm-extender.environment" -}}
{{- $prefix := index . 0 -}}
{{- range $key, $value := index . 1 }}
{{- if ne $value nil }}
- name: {{ $prefix }}{{ snakecase $key | upper }}
  {{- if kindIs "slice" $value }}
  value: {{ join "," $value | quote }}
  {{- else }}
  value: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }}
  {{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "slurm-extender.extenderEnvironment" -}}
{{- include "slurm-extender.environment" (list "SLURM_EXTENDER_" (include "slurm-extender.made" . | fromJson)) }}
{{- include "slurm-extender.environment" (list "SLURM_EXTENDER_" .Values.extender.settings) }}
- name: SLURM_EXTENDER_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: SLURM_EXTENDER_REPLICA
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{- if .Values.slurm.caSecret.name }}
- name: SSL_CERT_FILE
  value: /etc/slurm-extender/slurm-ca/ca.crt
{{- end }}
{{- end -}}

{{/*
The volumes that a program needs to call Slurm. Containers mount whole volumes, because the kubelet updates files only in
whole volumes.
*/}}
{{- define "slurm-extender.slurmVolumes" -}}
- name: slurm-token
  secret:
    secretName: {{ required "slurm.tokenSecret.name: the Secret with the JWT of SlurmUser" .Values.slurm.tokenSecret.name }}
    items: [{key: {{ .Values.slurm.tokenSecret.key }}, path: token}]
{{- if .Values.slurm.caSecret.name }}
- name: slurm-ca
  secret:
    secretName: {{ .Values.slurm.caSecret.name }}
    items: [{key: {{ .Values.slurm.caSecret.key }}, path: ca.crt}]
{{- end }}
{{- end -}}

{{/* The volumes with all files that the extender reads. */}}
{{- define "slurm-extender.volumes" -}}
{{ include "slurm-extender.slurmVolumes" . }}
- name: policy
  configMap:
    name: {{ include "slurm-extender.fullname" . }}-policy
{{- if eq .Values.scheduler.mode "own" }}
- name: kube-scheduler  # the extender checks that this configuration evicts no other Pods
  configMap:
    name: {{ include "slurm-extender.fullname" . }}-kube-scheduler
    items: [{key: config.yaml, path: config.yaml}]
{{- end }}
{{- if ne .Values.webhooks.certificates.mode "selfManaged" }}
- name: tls
  secret:
    secretName: {{ include "slurm-extender.tlsSecret" . }}
{{- end }}
{{- if .Values.webhooks.certificates.clientCASecret.name }}
- name: admission-callers
  secret:
    secretName: {{ .Values.webhooks.certificates.clientCASecret.name }}
    items: [{key: {{ .Values.webhooks.certificates.clientCASecret.key }}, path: ca.crt}]
{{- end }}
{{- if include "slurm-extender.calledFromElsewhere" . }}
- name: scheduler-callers
  secret:
    secretName: {{ required "scheduler.existing.clientCASecret.name: the Secret with the authority of kube-scheduler's certificate" .Values.scheduler.existing.clientCASecret.name }}
    items: [{key: {{ .Values.scheduler.existing.clientCASecret.key }}, path: ca.crt}]
{{- end }}
{{- if .Values.hooks.enabled }}
- name: hooks-token
  secret:
    secretName: {{ required "hooks.tokenSecret.name: the Secret with the token of Slurm's pushes" .Values.hooks.tokenSecret.name }}
    items: [{key: {{ .Values.hooks.tokenSecret.key }}, path: token}]
{{- end }}
{{- if .Values.pools.enabled }}
- name: pools
  configMap:
    name: {{ include "slurm-extender.fullname" . }}-pools
{{- end }}
{{- end -}}

{{/* The mounts of volumes in a container. The argument is the list of volumes, as YAML. */}}
{{- define "slurm-extender.mounts" -}}
{{- range fromYamlArray . }}
- {name: {{ .name }}, mountPath: /etc/slurm-extender/{{ .name }}, readOnly: true}
{{- end }}
{{- end -}}

{{/*
The node agent's settings that the chart derives from other values, as JSON. The names of the variables are without
NODE_AGENT_.
*/}}
{{- define "slurm-extender.agentMade" -}}
{{- $label := default .Values.extender.settings.NODE_NAME_LABEL .Values.extender.settings.nodeNameLabel -}}
{{- $made := dict
  "GRES" .Values.nodeAgent.gresList
  "CGROUPS" "/host/cgroup"
  "RESOURCES" (toJson .Values.gpuTypes)
  "NRI" (.Values.nodeAgent.nri | ternary "/var/run/nri/nri.sock" "")
-}}
{{- if .Values.pools.enabled }}{{ $_ := set $made "SLURMD_NAMESPACE" .Values.pools.namespace }}{{ end -}}
{{- with $label }}{{ $_ := set $made "NODE_NAME_LABEL" . }}{{ end -}}
{{- with .Values.nodeAgent.jobMapping }}{{ $_ := set $made "JOB_MAPPING" . }}{{ end -}}
{{- toJson $made -}}
{{- end -}}
