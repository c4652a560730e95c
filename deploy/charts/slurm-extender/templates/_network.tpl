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
  {{- range $port := list 53 5353 }}{{/* OpenShift's listens on the second */}}
  - {port: {{ $port }}, protocol: UDP}
  - {port: {{ $port }}, protocol: TCP}
  {{- end }}
- ports:
  {{- range .Values.networkPolicy.kubeApiServer.ports }}
  - {port: {{ . }}}
  {{- end }}
  {{- include "slurm-extender.peers" (list "to" .Values.networkPolicy.kubeApiServer.cidrs) | nindent 2 }}
{{- end -}}

{{/* slurmrestd, at the port of its address, and where a Service has another one: those of the Pods behind it. */}}
{{- define "slurm-extender.slurmEgress" -}}
{{- $slurm := urlParse (default "http://none:6820" .Values.slurm.restUrl) -}}
{{- $port := regexFind ":[0-9]+$" $slurm.host | trimPrefix ":" | default (eq $slurm.scheme "https" | ternary "443" "80") -}}
- ports:
  - {port: {{ $port }}}
  {{- range .Values.networkPolicy.slurm.ports }}
  - {port: {{ . }}}
  {{- end }}
  {{- include "slurm-extender.peers" (list "to" .Values.networkPolicy.slurm.cidrs) | nindent 2 }}
{{- end -}}
