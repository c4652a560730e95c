{{/*
The options of sssd for each kind of directory, by the names in sssd-ldap(5). docs/reference/users.md has the sources of
these options.
*/}}
{{- define "slurm.directoryPresets" -}}
openldap:
  ldap_schema: rfc2307
  access_provider: ldap
  ldap_access_order: expire
  ldap_account_expire_policy: shadow
active-directory:
  ldap_schema: ad
  ldap_id_mapping: true
  ldap_referrals: false
  ldap_user_ssh_public_key: altSecurityIdentities
  case_sensitive: false
  access_provider: ldap
  ldap_access_order: expire
  ldap_account_expire_policy: ad
okta:
  ldap_schema: rfc2307bis
  ldap_user_search_base: {{ printf "ou=users,%s" .Values.directory.baseDn | toJson }}
  ldap_user_object_class: inetOrgPerson
  ldap_group_search_base: {{ printf "ou=groups,%s" .Values.directory.baseDn | toJson }}
  ldap_group_object_class: groupOfUniqueNames
  ldap_group_member: uniqueMember
  auto_private_groups: true
  re_expression: (?P<name>.+)
  access_provider: permit
authentik:
  ldap_schema: rfc2307bis
  ldap_user_search_base: {{ printf "ou=users,%s" .Values.directory.baseDn | toJson }}
  ldap_user_object_class: user
  ldap_user_name: cn
  ldap_group_object_class: group
  ldap_group_name: cn
  access_provider: ldap
  ldap_access_order: filter
  ldap_access_filter: (ak-active=TRUE)
google:
  ldap_schema: rfc2307bis
  ldap_user_uuid: entryUUID
  access_provider: permit
{{- end -}}

{{/* The options of sssd that are the same for all kinds of directories. */}}
{{- define "slurm.directoryCommon" -}}
{{- $directory := .Values.directory -}}
id_provider: ldap
auth_provider: ldap
chpass_provider: ldap
ldap_uri: {{ join ", " $directory.uris | toJson }}
ldap_search_base: {{ $directory.baseDn | toJson }}
ldap_id_use_start_tls: true  # for ldap://; with ldaps://, sssd always uses TLS
ldap_tls_reqcert: demand
ldap_tls_cacert: {{ ternary "/etc/directory-ca/ca.crt" "/etc/ssl/certs/ca-certificates.crt" (ne $directory.caSecret.name "") }}
{{- with $directory.bindDn }}
ldap_default_bind_dn: {{ toJson . }}
ldap_default_authtok_type: password
{{- end }}
{{- if $directory.clientCertificateSecret }}
ldap_tls_cert: /etc/directory-client/tls.crt
ldap_tls_key: /etc/directory-client/tls.key
{{- end }}
enumerate: false
cache_credentials: {{ $directory.cache.passwords }}
entry_cache_timeout: {{ $directory.cache.seconds }}
fallback_homedir: {{ $directory.home | toJson }}
default_shell: {{ $directory.shell | toJson }}
{{- end -}}

{{/*
A value without an exponent. Helm stores whole numbers as float64, and would write large numbers with an exponent.
*/}}
{{- define "slurm.plain" -}}
{{- if kindIs "float64" . -}}{{ int64 . }}{{- else -}}{{ . }}{{- end -}}
{{- end -}}

{{/* The text of sssd.conf(5), without the password, because start-sssd reads the password from a Secret. */}}
{{- define "slurm.sssdConfig" -}}
{{- $directory := .Values.directory -}}
{{- $preset := get (include "slurm.directoryPresets" . | fromYaml) $directory.preset -}}
{{- $common := include "slurm.directoryCommon" . | fromYaml -}}
[sssd]
services = nss, pam, ssh
domains = directory

[nss]
filter_users = root, slurm
filter_groups = root, slurm

[pam]
# Otherwise a session could try passwords through sssd, and sshd would not notice.
pam_trusted_users = 0
offline_credentials_expiration = {{ $directory.cache.days }}

[domain/directory]
{{- $options := merge $preset $common }}
{{- range $name, $value := $directory.options }}
{{- $options = kindIs "invalid" $value | ternary (omit $options $name) (set $options $name $value) }}
{{- end }}
{{- range $name, $value := $options }}
{{ $name }} = {{ include "slurm.plain" $value }}
{{- end }}
{{- end -}}

{{/* sssd reads its configuration only at its start. With this checksum, a change restarts the Pods. */}}
{{- define "slurm.directoryChecksum" -}}
{{- if ne .Values.directory.preset "none" }}checksum/directory: {{ include "slurm.sssdConfig" . | sha256sum }}{{ end -}}
{{- end -}}

{{/* The users in directory.users, in the format of passwd(5). */}}
{{- define "slurm.staticPasswd" -}}
{{- $directory := .Values.directory -}}
{{- $seen := dict -}}
{{- range $directory.users -}}
{{- range $what := list (printf "name %s" .name) (printf "uid %s" (include "slurm.plain" .uid)) -}}
{{- if hasKey $seen $what }}{{ fail (printf "directory.users: two have the %s" $what) }}{{ end -}}
{{- $_ := set $seen $what true -}}
{{- end -}}
{{- $group := include "slurm.plain" (default .uid .gid) -}}
{{- $home := default (replace "%u" .name $directory.home) .home -}}
{{ .name }}:x:{{ include "slurm.plain" .uid }}:{{ $group }}:{{ default "" .fullName }}:{{ $home }}:{{ default $directory.shell .shell }}
{{ end }}
{{- end -}}

{{/*
The groups of these users, and the groups in directory.groups, in the format of group(5). A user without a gid gets a
separate group.
*/}}
{{- define "slurm.staticGroup" -}}
{{- range .Values.directory.users -}}
{{- if not .gid -}}
{{ .name }}:x:{{ include "slurm.plain" .uid }}:
{{ end }}
{{- end }}
{{- range .Values.directory.groups -}}
{{ .name }}:x:{{ include "slurm.plain" .gid }}:{{ join "," .members }}
{{ end }}
{{- end -}}

{{- define "slurm.usersConfigMap" -}}
{{- default (include "slurm.object" (list . "slurm-users")) .Values.directory.usersConfigMap -}}
{{- end -}}

{{- define "slurm.userKeysConfigMap" -}}
{{- default (include "slurm.object" (list . "slurm-user-keys")) .Values.directory.userKeysConfigMap -}}
{{- end -}}

{{/*
The volumes of a Pod that must know the users. The mounts for the containers of the Pod are below.
*/}}
{{- define "slurm.directoryVolumes" -}}
{{- $directory := .Values.directory -}}
- name: users
  configMap: {name: {{ include "slurm.usersConfigMap" . }}}
{{- if ne $directory.preset "none" }}
- name: sss
  emptyDir: {sizeLimit: 1Gi}
- name: sssd-etc
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
- name: sssd-run
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
- name: sssd-tmp
  emptyDir: {medium: Memory, sizeLimit: 16Mi}
- name: directory
  configMap: {name: {{ include "slurm.object" (list . "slurm-directory") }}}
{{- if $directory.bindPasswordSecret.name }}
- name: directory-password
  secret:
    secretName: {{ $directory.bindPasswordSecret.name }}
    defaultMode: 0400
    items: [{key: {{ $directory.bindPasswordSecret.key | quote }}, path: password}]
{{- end }}
{{- if $directory.caSecret.name }}
- name: directory-ca
  secret:
    secretName: {{ $directory.caSecret.name }}
    items: [{key: {{ $directory.caSecret.key | quote }}, path: ca.crt}]
{{- end }}
{{- if $directory.clientCertificateSecret }}
- name: directory-client
  secret: {secretName: {{ $directory.clientCertificateSecret }}, defaultMode: 0400}
{{- end }}
{{- end }}
{{- end -}}

{{/*
The mounts of these volumes in a container. They are read-only: a program that could write there could pretend to be sssd,
and would then receive passwords.
*/}}
{{- define "slurm.directoryMounts" -}}
- {name: users, mountPath: /var/lib/extrausers, readOnly: true}
{{- if ne .Values.directory.preset "none" }}
- {name: sss, mountPath: /var/lib/sss, readOnly: true}
{{- end }}
{{- end -}}

{{/*
The security settings of a container that runs as root, but has only the rights of the owner of its files.
*/}}
{{- define "slurm.powerlessRoot" -}}
runAsUser: 0
runAsGroup: 0
runAsNonRoot: false
{{ include "slurm.restrictedContainer" . }}
{{- end -}}

{{/*
sssd, in an init container that stays. The Pod's programs reach sssd through the volume sss. They do not wait for sssd: an
error of the directory must neither stop slurmctld, nor prevent logins of the users in directory.users.
*/}}
{{- define "slurm.directoryContainer" -}}
{{- $directory := .Values.directory -}}
{{- if ne $directory.preset "none" -}}
- name: sssd
  image: {{ include "slurm.image" (list . "sssd") }}
  imagePullPolicy: {{ .Values.images.pullPolicy }}
  restartPolicy: Always
  command: [/usr/libexec/slurm-login/start-sssd]
  terminationMessagePolicy: FallbackToLogsOnError
  resources: {{- toYaml $directory.resources | nindent 4 }}
  securityContext: {{- include "slurm.powerlessRoot" . | nindent 4 }}
  volumeMounts:
  - {name: sss, mountPath: /var/lib/sss}
  - {name: sssd-etc, mountPath: /etc/sssd}
  - {name: sssd-run, mountPath: /run}
  - {name: sssd-tmp, mountPath: /tmp}
  - {name: directory, mountPath: /etc/directory, readOnly: true}
  {{- if $directory.bindPasswordSecret.name }}
  - {name: directory-password, mountPath: /etc/directory-password, readOnly: true}
  {{- end }}
  {{- if $directory.caSecret.name }}
  - {name: directory-ca, mountPath: /etc/directory-ca, readOnly: true}
  {{- end }}
  {{- if $directory.clientCertificateSecret }}
  - {name: directory-client, mountPath: /etc/directory-client, readOnly: true}
  {{- end }}
{{- end -}}
{{- end -}}
