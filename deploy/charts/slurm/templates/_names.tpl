{{/*
The prefix of the objects' names. The release's name is cut to 30 characters, because the names of Pods and Services add a
suffix. Dots are replaced, because the name of a Service must not contain a dot.
*/}}
{{- define "slurm.prefix" -}}
{{- if kindIs "string" .Values.namePrefix -}}
{{- .Values.namePrefix -}}
{{- else if ne .Release.Name "slurm" -}}
{{- printf "%s-" (.Release.Name | replace "." "-" | trunc 30 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{/* The name of an object: [root, name]. */}}
{{- define "slurm.object" -}}
{{- include "slurm.prefix" (index . 0) }}{{ index . 1 -}}
{{- end -}}

{{/* The name of a Service in the cluster: [root, name]. */}}
{{- define "slurm.host" -}}
{{- include "slurm.object" . }}.{{ (index . 0).Release.Namespace }}.svc
{{- end -}}

{{- define "slurm.labels" -}}
app.kubernetes.io/name: slurm
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The labels of an object of one component: [root, component]. */}}
{{- define "slurm.componentLabels" -}}
{{ include "slurm.labels" (index . 0) }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* The selector labels of a component's Pods: [root, component]. */}}
{{- define "slurm.selector" -}}
app.kubernetes.io/name: slurm
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* The name, namespace and labels of an object of a component: [root, name, component]. */}}
{{- define "slurm.metadata" -}}
name: {{ include "slurm.object" . }}
namespace: {{ (index . 0).Release.Namespace }}
labels: {{- include "slurm.componentLabels" (list (index . 0) (index . 2)) | nindent 2 }}
{{- end -}}

{{/* An image: [root, name]. */}}
{{- define "slurm.image" -}}
{{- $root := index . 0 -}}{{- $images := $root.Values.images -}}
{{- $tag := default $root.Chart.AppVersion $images.tag -}}
{{- default (printf "%s/%s:%s" $images.registry (index . 1) $tag | trimPrefix "/") (get $images.references (index . 1)) -}}
{{- end -}}

{{- define "slurm.slurmKeySecret" -}}
{{- default (include "slurm.object" (list . "slurm-key")) .Values.keys.slurmKeySecret -}}
{{- end -}}

{{- define "slurm.jwtKeySecret" -}}
{{- default (include "slurm.object" (list . "slurm-jwt-key")) .Values.keys.jwtKeySecret -}}
{{- end -}}

{{- define "slurm.databaseSecret" -}}
{{- default (include "slurm.object" (list . "mariadb")) .Values.accounting.database.passwordSecret.name -}}
{{- end -}}

{{/* The addresses of the slurmctlds for Slurm's programs: HOST:PORT, separated by commas. */}}
{{- define "slurm.controllers" -}}
{{- $found := list -}}
{{- range $index := until (int .Values.slurmctld.replicas) -}}
{{- $found = append $found (printf "%s:6817" (include "slurm.host" (list $ (printf "slurmctld-%d" $index)))) -}}
{{- end -}}
{{- join "," $found -}}
{{- end -}}

{{- define "slurm.extenderNamespace" -}}
{{- default .Release.Namespace .Values.slurmExtender.namespace -}}
{{- end -}}
