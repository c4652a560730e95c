{{- define "slurm.slurmdbdConf" -}}
{{- $database := .Values.accounting.database -}}
# The chart {{ .Chart.Name }} made this file from the values of the release {{ .Release.Name }}.
# StoragePass comes from a Secret.
{{- include "slurm.parameters" (dict
  "SlurmUser" "slurm"
  "DbdHost" "slurmdbd"
  "DbdPort" 6819
  "PidFile" "/run/slurmdbd.pid"
  "AuthType" "auth/slurm"
  "AuthInfo" "use_client_ids"
  "AuthAltTypes" "auth/jwt"
  "AuthAltParameters" "jwt_key=/etc/slurm-keys/jwt_hs256.key"
  "StorageType" "accounting_storage/mysql"
  "StorageHost" (default (include "slurm.host" (list . "mariadb")) $database.host)
  "StoragePort" $database.port
  "StorageLoc" $database.name
  "StorageUser" $database.user
) }}
{{- include "slurm.parameters" .Values.accounting.slurmdbd.config }}
{{ end -}}

{{/* A volume with the file `password`, which has the password of the database's user. */}}
{{- define "slurm.databaseVolume" -}}
- name: database
  secret:
    secretName: {{ include "slurm.databaseSecret" . }}
    items: [{key: {{ .Values.accounting.database.passwordSecret.key }}, path: password}]
    defaultMode: 0400
{{- end -}}

{{/* The environment variables for the programs in the image mariadb. */}}
{{- define "slurm.databaseEnvironment" -}}
- {name: DATABASE, value: {{ .Values.accounting.database.name | quote }}}
- {name: DATABASE_USER, value: {{ .Values.accounting.database.user | quote }}}
- {name: DATABASE_PASSWORD_FILE, value: /etc/slurm-database/password}
{{- end -}}

{{- define "slurm.mariadbConf" -}}
[mariadbd]
{{- include "slurm.parameters" .Values.accounting.mariadb.config }}
{{ end -}}

{{/* The Pod that dumps the database to the backup volume: [root, the command as a JSON list]. */}}
{{- define "slurm.dumpPod" -}}
{{- $root := index . 0 -}}{{- $mariadb := $root.Values.accounting.mariadb -}}
metadata:
  labels: {{- include "slurm.componentLabels" (list $root "mariadb-backup") | nindent 4 }}
spec:
  {{- include "slurm.pod" (list $root 64032) | nindent 2 }}
  restartPolicy: Never
  {{- include "slurm.place" $mariadb | nindent 2 }}
  containers:
  {{- include "slurm.container" (list $root "mariadb-backup" "mariadb") | nindent 2 }}
    command: {{ index . 1 }}
    args: [{{ include "slurm.host" (list $root "mariadb") }}, {{ $root.Values.accounting.database.port | quote }}, /backup, {{ $mariadb.backup.keep | quote }}]
    env: {{- include "slurm.databaseEnvironment" $root | nindent 4 }}
    resources:
      requests: {cpu: 50m, memory: 64Mi}
      limits: {memory: 512Mi}
    volumeMounts:
    - {name: backup, mountPath: /backup}
    - {name: database, mountPath: /etc/slurm-database, readOnly: true}
    - {name: tmp, mountPath: /tmp}
  volumes:
  - name: backup
    persistentVolumeClaim: {claimName: {{ default (include "slurm.object" (list $root "mariadb-backup")) $mariadb.backup.existingClaim }}}
  {{- include "slurm.databaseVolume" $root | nindent 2 }}
  - name: tmp
    emptyDir: {medium: Memory, sizeLimit: 16Mi}
{{- end -}}
