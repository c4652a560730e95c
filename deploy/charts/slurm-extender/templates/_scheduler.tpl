{{/*
The `schedulerName` of Pods that go to Slurm. kube-scheduler writes Events under this name, and kube-apiserver takes
63 characters there.
*/}}
{{- define "slurm-extender.schedulerName" -}}
{{- $name := .Values.scheduler.name | default (printf "%s-%s" .Release.Namespace .Release.Name | trunc 63 | trimAll "-.") -}}
{{- if eq $name "default-scheduler" -}}
{{- fail "scheduler.name: blank is default-scheduler here, which is the scheduler of all other Pods: set scheduler.name" -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{/* Where kube-scheduler finds the extender. */}}
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

{{/* An extender as a kube-scheduler is told of it: [root, verbs, ignorable]. */}}
{{- define "slurm-extender.asked" -}}
{{- $root := index . 0 -}}{{- $verbs := index . 1 -}}{{- $existing := $root.Values.scheduler.existing -}}
{{- $url := include "slurm-extender.schedulerUrl" $root -}}
- urlPrefix: {{ $url }}
{{- if hasPrefix "https:" $url }}
  enableHTTPS: true
  tlsConfig:
    caFile: {{ $existing.tls.caFile }}  # without it kube-scheduler believes any certificate
    certFile: {{ $existing.tls.certFile }}
    keyFile: {{ $existing.tls.keyFile }}
{{- end }}
{{- range $verbs }}
  {{ . }}Verb: {{ . }}
{{- end }}
  nodeCacheCapable: true
  httpTimeout: 5s
  ignorable: {{ index . 2 }}
{{- end -}}

{{- define "slurm-extender.profile" -}}
- schedulerName: {{ include "slurm-extender.schedulerName" . }}
  # With anything less than 100 the extender is shown only a part of the cluster.
  percentageOfNodesToScore: 100
  plugins:
    # Where preemptVerb is not asked it would evict real Pods for one that Slurm has not let in. `postFilter`
    # would spare them single Pods alone: 1.37 preempts for PodGroups at `podGroupPostFilter`, which an older
    # kube-scheduler does not read.
    multiPoint:
      disabled:
      - name: DefaultPreemption
{{- end -}}

{{/*
The configuration of the kube-scheduler that has Slurm's Pods; of releases 1.31 to 1.37 alike. An existing one has its
own kubeconfig and leader election, and the Pods of others, for which it asks as well.
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
{{ include "slurm-extender.asked" (list . (list "filter" "bind" "preempt") false) }}
{{- end -}}

{{/*
What the kube-scheduler of others may be told besides, so that their Pods are fitted into what Slurm leaves
(docs/concepts/scope.md). It goes on where no extender answers.
*/}}
{{- define "slurm-extender.othersConfiguration" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
extenders:
{{ include "slurm-extender.asked" (list . (list "filter" "preempt") true) }}
{{- end -}}
