{{/*
The `schedulerName` of Pods that go to Slurm. kube-scheduler writes Events with this name, and kube-apiserver accepts at
most 63 characters there.
*/}}
{{- define "slurm-extender.schedulerName" -}}
{{- $name := .Values.scheduler.name | default (printf "%s-%s" .Release.Namespace .Release.Name | trunc 63 | trimAll "-.") -}}
{{- if eq $name "default-scheduler" -}}
{{- fail "scheduler.name: blank is default-scheduler here, which is the scheduler of all other Pods: set scheduler.name" -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{/* The URL at which kube-scheduler calls the extender. */}}
{{- define "slurm-extender.schedulerUrl" -}}
{{- $existing := .Values.scheduler.existing -}}
{{- if $existing.url -}}
{{- $existing.url | trimSuffix "/" -}}
{{- else if or (eq .Values.scheduler.mode "own") .Values.extender.outside.enabled -}}
http://127.0.0.1:8888/scheduler
{{- else -}}
https://{{ include "slurm-extender.fullname" . }}.{{ .Release.Namespace }}.svc:8888/scheduler
{{- end -}}
{{- end -}}

{{/* An entry for the extender in a kube-scheduler's configuration: [root, verbs, httpTimeout, ignorable]. */}}
{{- define "slurm-extender.asked" -}}
{{- $root := index . 0 -}}{{- $verbs := index . 1 -}}{{- $existing := $root.Values.scheduler.existing -}}
{{- $url := include "slurm-extender.schedulerUrl" $root -}}
- urlPrefix: {{ $url }}
{{- if hasPrefix "https:" $url }}
  enableHTTPS: true
  tlsConfig:
    caFile: {{ $existing.tls.caFile }}  # without caFile, kube-scheduler trusts any certificate
    certFile: {{ $existing.tls.certFile }}
    keyFile: {{ $existing.tls.keyFile }}
{{- end }}
{{- range $verbs }}
  {{ . }}Verb: {{ . }}
{{- end }}
  nodeCacheCapable: true
  httpTimeout: {{ index . 2 }}
  ignorable: {{ index . 3 }}
{{- end -}}

{{- define "slurm-extender.profile" -}}
- schedulerName: {{ include "slurm-extender.schedulerName" . }}
  # Below 100, kube-scheduler sends only a part of the Nodes to the extender.
  percentageOfNodesToScore: 100
  plugins:
    # If kube-scheduler does not call preemptVerb, DefaultPreemption would evict Pods for a Pod without a grant
    # of Slurm. `multiPoint` disables DefaultPreemption completely. `postFilter` would disable it only for single
    # Pods: for PodGroups, 1.37 preempts at `podGroupPostFilter`, and older kube-schedulers do not know this name.
    multiPoint:
      disabled:
      - name: DefaultPreemption
{{- end -}}

{{/*
The configuration of the kube-scheduler for Slurm's Pods. The configuration is the same for Kubernetes 1.31 to 1.37. An
existing kube-scheduler has its own kubeconfig and leader election. An existing kube-scheduler also schedules all other
Pods, and calls the extender for these Pods too.
*/}}
{{- define "slurm-extender.kubeSchedulerConfiguration" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
{{- if eq .Values.scheduler.mode "own" }}
leaderElection:
  leaderElect: true
  resourceName: {{ include "slurm-extender.fullname" . }}-kube-scheduler
  resourceNamespace: {{ .Release.Namespace }}
  {{- toYaml .Values.scheduler.leaderElection | nindent 2 }}
clientConnection:
  qps: 1000
  burst: 2000
{{- end }}
profiles:
{{- if eq .Values.scheduler.mode "existing" }}
- schedulerName: default-scheduler
{{- end }}
{{ include "slurm-extender.profile" . }}
extenders:
{{ include "slurm-extender.asked" (list . (list "filter" "preempt") "5s" false) }}
# The calls of /bind for the Pods of a gang wait for each other.
{{ include "slurm-extender.asked" (list . (list "bind") "30s" false) }}
{{- end -}}

{{/*
An optional configuration for the kube-scheduler of all other Pods. With this configuration, other Pods get only the part
of a node that Slurm leaves free (docs/concepts/scope.md). This kube-scheduler continues to work if no extender answers.
*/}}
{{- define "slurm-extender.othersConfiguration" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
extenders:
{{ include "slurm-extender.asked" (list . (list "filter" "preempt") "5s" true) }}
{{- end -}}
