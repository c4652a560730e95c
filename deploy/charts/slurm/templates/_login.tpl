{{/* Keywords of sshd_config(5), one on each line. A list gives one line for each element. */}}
{{- define "slurm.sshdOptions" -}}
{{- range $name, $given := . }}
{{- range (kindIs "slice" $given | ternary $given (list $given)) }}
{{ $name }} {{ if kindIs "bool" . }}{{ ternary "yes" "no" . }}{{ else }}{{ include "slurm.plain" . }}{{ end }}
{{- end }}
{{- end }}
{{- end -}}

{{/*
The text of sshd_config(5). sshd uses the first value of a keyword, so the keywords in login.sshd.options come before the
chart's keywords.
*/}}
{{- define "slurm.sshdConfig" -}}
{{- $login := .Values.login -}}
# From the values, login.sshd.options:
{{- include "slurm.sshdOptions" $login.sshd.options }}
# From the chart:
Port {{ $login.port }}
{{- range list "ed25519" "ecdsa" "rsa" }}
HostKey /etc/slurm-login-host-keys/ssh_host_{{ . }}_key
{{- end }}
PidFile none
UsePAM yes
PermitRootLogin no
PubkeyAuthentication yes
AuthorizedKeysCommand /usr/libexec/slurm-login/authorized-keys %u
AuthorizedKeysCommandUser nobody
AuthorizedKeysFile {{ ternary ".ssh/authorized_keys" "none" $login.homeKeys }}
PasswordAuthentication {{ ternary "yes" "no" (and $login.passwords (ne .Values.directory.preset "none")) }}
KbdInteractiveAuthentication no
{{- with $login.allowedGroups }}
AllowGroups{{ range . }} {{ . | quote }}{{ end }}
{{- end }}
AcceptEnv LANG LC_*
PrintMotd {{ ternary "yes" "no" (ne $login.motd "") }}
ClientAliveInterval 60
Subsystem sftp internal-sftp
{{- range $login.sshd.match }}
Match {{ .criteria }}
{{- include "slurm.sshdOptions" .options | trim | nindent 4 }}
{{- end }}
{{- end -}}

{{- define "slurm.hostKeysSecret" -}}
{{- default (include "slurm.object" (list . "login-host-keys")) .Values.login.hostKeysSecret -}}
{{- end -}}

{{/* `yes` if a shared volume has this mount path, otherwise empty: [root, path]. */}}
{{- define "slurm.hasShared" -}}
{{- $path := index . 1 -}}
{{- range (index . 0).Values.volumes }}{{ if eq .mountPath $path }}yes{{ end }}{{ end -}}
{{- end -}}

{{/*
A checksum of the files that programs read only at their start, so that a change restarts the Pods. Users and their keys are
not part of it, because programs read them again each time.
*/}}
{{- define "slurm.loginChecksums" -}}
{{- $read := list (include "slurm.sshdConfig" .) .Values.login.motd -}}
{{- if ne .Values.directory.preset "none" }}{{ $read = append $read (include "slurm.sssdConfig" .) }}{{ end -}}
checksum/login: {{ $read | toJson | sha256sum }}
{{- end -}}
