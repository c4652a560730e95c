{{- define "slurm-extender.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/*
The name of most objects. The name has at most 40 characters, because the names of Pods and Services add a suffix. The name
of a Service must not contain a dot.
*/}}
{{- define "slurm-extender.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "slurm-extender.name" .) .Release.Name -}}
{{- .Release.Name | replace "." "-" | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "slurm-extender.name" .) | replace "." "-" | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "slurm-extender.agentName" -}}
{{- include "slurm-extender.fullname" . }}-node-agent
{{- end -}}

{{- define "slurm-extender.labels" -}}
app.kubernetes.io/name: {{ include "slurm-extender.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The labels of an object of one component: [root, component]. */}}
{{- define "slurm-extender.componentLabels" -}}
{{ include "slurm-extender.labels" (index . 0) }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* The selector labels of a component's Pods: [root, component]. */}}
{{- define "slurm-extender.selector" -}}
app.kubernetes.io/name: {{ include "slurm-extender.name" (index . 0) }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "slurm-extender.account" -}}
{{- default (include "slurm-extender.fullname" .) .Values.extender.serviceAccount.name -}}
{{- end -}}

{{- define "slurm-extender.agentAccount" -}}
{{- default (include "slurm-extender.agentName" .) .Values.nodeAgent.serviceAccount.name -}}
{{- end -}}

{{/* The extender's user name in kube-apiserver. */}}
{{- define "slurm-extender.username" -}}
{{- if .Values.extender.outside.enabled -}}
{{- .Values.extender.outside.user -}}
{{- else -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "slurm-extender.account" . }}
{{- end -}}
{{- end -}}

{{- define "slurm-extender.agentUsername" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "slurm-extender.agentAccount" . }}
{{- end -}}

{{/* The subjects for the bindings of the extender's roles. */}}
{{- define "slurm-extender.subjects" -}}
{{- if .Values.extender.outside.enabled -}}
- apiGroup: rbac.authorization.k8s.io
  kind: User
  name: {{ .Values.extender.outside.user }}
{{- else -}}
- kind: ServiceAccount
  name: {{ include "slurm-extender.account" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}
{{- end -}}

{{/* The rules that allow the extender to change and delete Pods. */}}
{{- define "slurm-extender.podChanges" -}}
- apiGroups: [""]
  resources: [pods]
  verbs: [patch, delete]
- apiGroups: [""]
  resources: [pods/status]
  verbs: [patch]
{{- end -}}

{{/* The subjects for the bindings of the node agents' roles. */}}
{{- define "slurm-extender.agentSubjects" -}}
- kind: ServiceAccount
  name: {{ include "slurm-extender.agentAccount" . }}
  namespace: {{ .Release.Namespace }}
{{- range .Values.nodeAgent.outside.users }}
- apiGroup: rbac.authorization.k8s.io
  kind: User
  name: {{ . }}
{{- end }}
{{- end -}}

{{/* An image: [root, values of the image, tag]. */}}
{{- define "slurm-extender.image" -}}
{{- $image := index . 1 -}}
{{- $name := printf "%s/%s" $image.registry $image.repository | trimPrefix "/" -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default (index . 2) $image.tag) -}}
{{- end -}}
{{- end -}}

{{/* The image of kube-scheduler. By default, the tag is the cluster's Kubernetes version. */}}
{{- define "slurm-extender.schedulerImage" -}}
{{- $tag := printf "v%s" (include "slurm-extender.kubernetesVersion" .) -}}
{{- include "slurm-extender.image" (list . .Values.scheduler.image $tag) -}}
{{- end -}}

{{/*
The container settings that the Pod Security level `restricted` requires. The read-only root file system is an addition.
*/}}
{{- define "slurm-extender.restrictedContainer" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "slurm-extender.restrictedPod" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* The Kubernetes version of the values or of the cluster as X.Y.Z, without the provider's suffix. */}}
{{- define "slurm-extender.kubernetesVersion" -}}
{{- $version := semver (default .Capabilities.KubeVersion.Version .Values.scheduler.kubernetesVersion) -}}
{{- printf "%d.%d.%d" $version.Major $version.Minor $version.Patch -}}
{{- end -}}

{{/*
The nodeSelector of a Pod: the given selector, with `kubernetes.io/os: linux` unless the selector has an operating system.
*/}}
{{- define "slurm-extender.nodeSelector" -}}
{{- merge (dict) . (dict "kubernetes.io/os" "linux") | toYaml }}
{{- end -}}

{{/* The annotations and labels of the objects for `helm test`: [root, weight]. */}}
{{- define "slurm-extender.checkHook" -}}
annotations:
  helm.sh/hook: test
  helm.sh/hook-weight: {{ index . 1 | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
labels: {{- include "slurm-extender.componentLabels" (list (index . 0) "check") | nindent 2 }}
{{- end -}}

{{/* The annotations and labels of objects that Helm creates after the uninstall: [root, weight]. */}}
{{- define "slurm-extender.uninstallHook" -}}
annotations:
  helm.sh/hook: post-delete
  helm.sh/hook-weight: {{ index . 1 | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
labels: {{- include "slurm-extender.componentLabels" (list (index . 0) "uninstall") | nindent 2 }}
{{- end -}}
