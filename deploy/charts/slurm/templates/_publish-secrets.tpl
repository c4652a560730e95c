{{/* The names of the Secrets that the Job below fills, by namespace, as JSON. */}}
{{- define "slurm.handedOut" -}}
{{- $found := dict -}}
{{- range .Values.slurmd.namespaces }}{{ $_ := set $found . (list "slurmd") }}{{ end -}}
{{- if .Values.slurmExtender.token.enabled -}}
{{- $namespace := include "slurm.extenderNamespace" . -}}
{{- $_ := set $found $namespace (append (get $found $namespace | default list) .Values.slurmExtender.token.secretName) -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* The spec of the Job that fills these Secrets. */}}
{{- define "slurm.publishSecretsJob" -}}
{{- $extender := .Values.slurmExtender -}}
{{- $hooks := and $extender.hooks.urls .Values.slurmd.namespaces -}}
backoffLimit: 6
activeDeadlineSeconds: 3600
template:
  metadata:
    labels: {{- include "slurm.componentLabels" (list . "publish-secrets") | nindent 6 }}
  spec:
    {{- include "slurm.pod" (list . 64030) | nindent 4 }}
    serviceAccountName: {{ include "slurm.object" (list . "slurm-publish-secrets") }}
    restartPolicy: Never
    initContainers:
    {{- include "slurm.sackdContainer" . | nindent 4 }}
    containers:
    {{- include "slurm.container" (list . "publish-secrets" "slurm-cluster") | nindent 4 }}
      command: [slurm-cluster, publish-secrets]
      args:
      {{- if $extender.token.enabled }}
      - --token={{ include "slurm.extenderNamespace" . }}/{{ $extender.token.secretName }}/token
      - --lifespan={{ int64 $extender.token.lifespanSeconds }}
      {{- end }}
      {{- range .Values.slurmd.namespaces }}
      - --file={{ . }}/slurmd/slurm.key=/etc/slurm-keys/slurm.key
      - --file={{ . }}/slurmd/slurm.jwks=/etc/slurm-keys/slurm.jwks
      {{- if $hooks }}
      - --file={{ . }}/slurmd/slurm-extender-hook.token=/etc/slurm-hooks/token
      {{- end }}
      {{- end }}
      resources:
        requests: {cpu: 20m, memory: 64Mi}
        limits: {memory: 256Mi}
      volumeMounts:
      - {name: keys, mountPath: /etc/slurm-keys, readOnly: true}
      {{- if $hooks }}
      - {name: hooks, mountPath: /etc/slurm-hooks, readOnly: true}
      {{- end }}
      {{- include "slurm.accountMount" . | nindent 6 }}
      {{- include "slurm.clientMounts" . | nindent 6 }}
    volumes:
    {{- include "slurm.clientVolumes" . | nindent 4 }}
    {{- if $hooks }}
    - name: hooks
      secret:
        secretName: {{ $extender.hooks.tokenSecret.name }}
        items: [{key: {{ $extender.hooks.tokenSecret.key }}, path: token}]
        defaultMode: 0400
    {{- end }}
    {{- include "slurm.accountVolume" . | nindent 4 }}
{{- end -}}
