{{/* The addresses of a rule: ["from" or "to", ranges]. Without ranges, the rule allows every address. */}}
{{- define "slurm-extender.peers" -}}
{{- with index . 1 -}}
{{ index $ 0 }}:
{{- range . }}
- ipBlock: {cidr: {{ . | quote }}}
{{- end }}
{{- end -}}
{{- end -}}

{{/* The outgoing connections of every component: to DNS, and to kube-apiserver. */}}
{{- define "slurm-extender.egress" -}}
- ports:
  {{- range $port := list 53 5353 }}{{/* OpenShift's DNS listens on 5353 */}}
  - {port: {{ $port }}, protocol: UDP}
  - {port: {{ $port }}, protocol: TCP}
  {{- end }}
- ports:
  {{- range .Values.networkPolicy.kubeApiServer.ports }}
  - {port: {{ . }}}
  {{- end }}
  {{- include "slurm-extender.peers" (list "to" .Values.networkPolicy.kubeApiServer.cidrs) | nindent 2 }}
{{- end -}}

{{/*
The outgoing connections to slurmrestd: to the port of slurm.restUrl, and to the ports in networkPolicy.slurm.ports. The
latter are the ports of slurmrestd's Pods, if their Service has another port.
*/}}
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
