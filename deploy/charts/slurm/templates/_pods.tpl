{{/*
The container settings that the Pod Security level `restricted` requires. The read-only root file system is an addition.
*/}}
{{- define "slurm.restrictedContainer" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* The Pod settings for the same level. The argument is the uid of the Pod's user. */}}
{{- define "slurm.restrictedPod" -}}
runAsNonRoot: true
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* The settings that all Pods have: [root, uid]. */}}
{{- define "slurm.pod" -}}
{{- $root := index . 0 -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with $root.Values.images.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 0 }}
{{- end }}
securityContext: {{- include "slurm.restrictedPod" (index . 1) | nindent 2 }}
{{- end -}}

{{/* The settings of Pods that run permanently: [root, uid]. */}}
{{- define "slurm.daemonPod" -}}
{{ include "slurm.pod" . }}
{{- with (index . 0).Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{/* The Nodes on which a component's Pods may run. The argument is the component's values. */}}
{{- define "slurm.place" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 0 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Spreads a component's Pods over as many Nodes as possible: [root, component]. */}}
{{- define "slurm.spread" -}}
topologySpreadConstraints:
- topologyKey: kubernetes.io/hostname
  maxSkew: 1
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- include "slurm.selector" . | nindent 6 }}
{{- end -}}

{{/* Labels and annotations of a component's Pods: [root, component, its values, annotations]. */}}
{{- define "slurm.podMetadata" -}}
labels:
  {{- include "slurm.componentLabels" (list (index . 0) (index . 1)) | nindent 2 }}
  {{- with (index . 2).podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  kubectl.kubernetes.io/default-container: {{ index . 1 }}
  {{- with index . 3 }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with (index . 2).podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* The first fields of a container: [root, name, image]. The caller adds further fields below. */}}
{{- define "slurm.container" -}}
{{- $root := index . 0 -}}
- name: {{ index . 1 }}
  image: {{ include "slurm.image" (list $root (index . 2)) }}
  imagePullPolicy: {{ $root.Values.images.pullPolicy }}
  securityContext: {{- include "slurm.restrictedContainer" $root | nindent 4 }}
{{- end -}}

{{/* The environment variables with the paths of the keys, for Slurm's programs. */}}
{{- define "slurm.keyEnvironment" -}}
- {name: SLURM_SACK_KEY, value: /etc/slurm-keys/slurm.key}
- {name: SLURM_SACK_JWKS, value: /etc/slurm-keys/slurm.jwks}
{{- end -}}

{{/* sackd, in an init container that stays. sackd gives Slurm's commands their configuration and their credentials. */}}
{{- define "slurm.sackdContainer" -}}
{{ include "slurm.container" (list . "sackd" "login") }}
  restartPolicy: Always
  command: [/usr/sbin/sackd, -D, --conf-server, {{ include "slurm.controllers" . | quote }}]
  env: {{- include "slurm.keyEnvironment" . | nindent 2 }}
  startupProbe:
    exec: {command: [test, -e, /run/slurm/conf/slurm.conf]}
    periodSeconds: 1
    timeoutSeconds: 15  # on a slow machine a command takes longer than the 1 s of the default
    failureThreshold: 1800
  resources:
    requests: {cpu: 10m, memory: 32Mi}
    limits: {memory: 256Mi}
  volumeMounts:
  - {name: keys, mountPath: /etc/slurm-keys, readOnly: true}
  - {name: run, mountPath: /run}
  - {name: slurm, mountPath: /run/slurm}
  - {name: tmp, mountPath: /tmp}
{{- end -}}

{{- define "slurm.clientMounts" -}}
- {name: slurm, mountPath: /run/slurm, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- end -}}

{{- define "slurm.clientVolumes" -}}
{{ include "slurm.keyVolume" (list . false) }}
- name: run
  emptyDir: {medium: Memory, sizeLimit: 16Mi}
- name: slurm
  emptyDir: {medium: Memory, sizeLimit: 16Mi}
- name: tmp
  emptyDir: {medium: Memory, sizeLimit: 64Mi}
{{- end -}}

{{/*
A volume with the keys as files: [root, true to add the key of auth/jwt]. Because of fsGroup, the Pod's group can read the
files. Other users cannot.
*/}}
{{- define "slurm.keyVolume" -}}
- name: keys
  projected:
    defaultMode: 0400
    sources:
    - secret:
        name: {{ include "slurm.slurmKeySecret" (index . 0) }}
    {{- if index . 1 }}
    - secret:
        name: {{ include "slurm.jwtKeySecret" (index . 0) }}
    {{- end }}
{{- end -}}

{{/* A volume with a token of the Pod's ServiceAccount, so that only one container gets the token. */}}
{{- define "slurm.accountVolume" -}}
- name: account
  projected:
    defaultMode: 0440
    sources:
    - serviceAccountToken: {path: token, expirationSeconds: 3607}
    - configMap:
        name: kube-root-ca.crt
        items: [{key: ca.crt, path: ca.crt}]
    - downwardAPI:
        items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]
{{- end -}}

{{- define "slurm.accountMount" -}}
- {name: account, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
{{- end -}}

{{/* The probes of a program that listens on a port: [port, longest time to start, in seconds]. */}}
{{- define "slurm.probes" -}}
startupProbe:
  tcpSocket: {port: {{ index . 0 }}}
  periodSeconds: 2
  failureThreshold: {{ div (index . 1) 2 }}
livenessProbe:
  tcpSocket: {port: {{ index . 0 }}}
  periodSeconds: 20
  timeoutSeconds: 10
  failureThreshold: 6
readinessProbe:
  tcpSocket: {port: {{ index . 0 }}}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 3
{{- end -}}

{{/*
A PersistentVolumeClaim that stays after `helm uninstall`: [root, name, component, size, storageClass, accessModes].
*/}}
{{- define "slurm.claim" -}}
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  {{- include "slurm.metadata" (list (index . 0) (index . 1) (index . 2)) | nindent 2 }}
  annotations:
    helm.sh/resource-policy: keep
spec:
  accessModes: {{- toYaml (index . 5) | nindent 2 }}
  {{- with index . 4 }}
  storageClassName: {{ . }}
  {{- end }}
  resources: {requests: {storage: {{ index . 3 }}}}
{{- end -}}

{{/* The annotations and labels of an object that Helm creates for a hook: [root, hook, weight, component]. */}}
{{- define "slurm.hook" -}}
annotations:
  helm.sh/hook: {{ index . 1 }}
  helm.sh/hook-weight: {{ index . 2 | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
labels: {{- include "slurm.componentLabels" (list (index . 0) (index . 3)) | nindent 2 }}
{{- end -}}

{{/* The shared volumes of a Pod (the value `volumes`). The mounts for the Pod's containers are below. */}}
{{- define "slurm.sharedVolumes" -}}
{{- range .Values.volumes }}
- name: shared-{{ .name }}
  {{- if .source }}
  {{- toYaml .source | nindent 2 }}
  {{- else }}
  persistentVolumeClaim: {claimName: {{ default (include "slurm.object" (list $ (printf "slurm-%s" .name))) .existingClaim }}}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "slurm.sharedMounts" -}}
{{- range .Values.volumes }}
- {name: shared-{{ .name }}, mountPath: {{ .mountPath }}}
{{- end }}
{{- end -}}

{{/* The fields of a container that creates Secrets: [root, name]. The caller adds the command below. */}}
{{- define "slurm.secretContainer" -}}
{{ include "slurm.container" (list (index . 0) (index . 1) "slurm-cluster") }}
  resources:
    requests: {cpu: 20m, memory: 64Mi}
    limits: {memory: 256Mi}
  volumeMounts:
  {{- include "slurm.accountMount" . | nindent 2 }}
  - {name: tmp, mountPath: /tmp}
{{- end -}}
