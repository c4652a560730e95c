{{/* Addresses of a rule: ["from" or "to", ranges]. No range: every address. */}}
{{- define "slurm-extender.peers" -}}
{{- with index . 1 -}}
{{ index $ 0 }}:
{{- range . }}
- ipBlock: {cidr: {{ . | quote }}}
{{- end }}
{{- end -}}
{{- end -}}

{{/* What every component calls: names, and kube-apiserver. */}}
{{- define "slurm-extender.egress" -}}
- ports:
  - {port: 53, protocol: UDP}
  - {port: 53, protocol: TCP}
- ports:
  {{- range .Values.networkPolicy.kubeApiServer.ports }}
  - {port: {{ . }}}
  {{- end }}
  {{- include "slurm-extender.peers" (list "to" .Values.networkPolicy.kubeApiServer.cidrs) | nindent 2 }}
{{- end -}}
