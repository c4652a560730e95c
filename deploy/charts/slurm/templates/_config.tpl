{{/* The value of a parameter, in the format of Slurm's files. */}}
{{- define "slurm.value" -}}
{{- if kindIs "slice" . -}}{{ join "," . }}
{{- else if kindIs "bool" . -}}{{ . | ternary "yes" "no" }}
{{- else if and (kindIs "float64" .) (eq . (floor .)) -}}{{ int64 . }}
{{- else -}}{{ . }}
{{- end -}}
{{- end -}}

{{/* Lines KEY=value. A list of scripts gives one line for each script. */}}
{{- define "slurm.parameters" -}}
{{- range $key, $value := . }}
{{- if and (kindIs "slice" $value) (regexMatch "^(Prolog|Epilog)(Slurmctld)?$" $key) }}
{{- range $value }}
{{ $key }}={{ . }}
{{- end }}
{{- else if ne $value nil }}
{{ $key }}={{ include "slurm.value" $value }}
{{- end }}
{{- end }}
{{- end -}}

{{/* One line for each entry of a list, such as NodeName=...: [the first parameter of each line, the list]. */}}
{{- define "slurm.named" -}}
{{- range index . 1 }}
{{ index $ 0 }}={{ .name }}
{{- range $key, $value := omit . "name" }}
{{- $said := include "slurm.value" $value }} {{ $key }}={{ contains " " $said | ternary (printf "\"%s\"" $said) $said }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The names of all scripts of one kind, as a JSON list: [first script, other scripts, prefix of the others' names]. */}}
{{- define "slurm.scripts" -}}
{{- $found := list (index . 0) | compact -}}
{{- range $name, $_ := index . 1 }}{{ $found = append $found (printf "%s%s" (index $ 2) $name) }}{{ end -}}
{{- toJson $found -}}
{{- end -}}

{{/*
The parameters of slurm.conf that the chart itself sets, as JSON. The names of Prolog, Epilog and the tasks' scripts have no
slash, because slurmctld sends only scripts without a slash to slurmds.
*/}}
{{- define "slurm.made" -}}
{{- $config := .Values.config -}}{{- $extender := .Values.slurmExtender -}}{{- $scripts := $config.scripts -}}
{{- $made := dict
  "ClusterName" .Values.clusterName
  "SlurmUser" "slurm"
  "SlurmctldPort" 6817
  "SlurmdPort" 6818
  "StateSaveLocation" "/var/spool/slurmctld/state"
  "SlurmctldPidFile" "/run/slurmctld.pid"
  "SlurmdSpoolDir" "/var/spool/slurmd"
  "AuthType" "auth/slurm"
  "AuthInfo" "use_client_ids"
  "AuthAltTypes" "auth/jwt"
  "AuthAltParameters" (printf "jwt_key=/etc/slurm/jwt_hs256.key,%s" (include "slurm.userTokens" .))
  "CredType" "cred/slurm"
-}}
{{- if .Values.accounting.enabled -}}
{{- $_ := set $made "AccountingStorageType" "accounting_storage/slurmdbd" -}}
{{- $_ := set $made "AccountingStorageHost" (include "slurm.host" (list . "slurmdbd")) -}}
{{- $_ := set $made "AccountingStoragePort" 6819 -}}
{{- end -}}
{{- $gate := ternary "slurm-extender-gate" "" $extender.gate -}}
{{- $hook := ternary "/etc/slurm/slurm-extender-hook" "" (gt (len $extender.hooks.urls) 0) -}}
{{- range $key, $given := dict
  "Prolog" (list $gate $scripts.prolog "")
  "Epilog" (list "" $scripts.epilog "")
  "PrologSlurmctld" (list "" $scripts.prologSlurmctld "/etc/slurm/")
  "EpilogSlurmctld" (list $hook $scripts.epilogSlurmctld "/etc/slurm/")
-}}
{{- with include "slurm.scripts" $given | fromJsonArray }}{{ $_ := set $made $key . }}{{ end -}}
{{- end -}}
{{- range $name, $_ := $scripts.taskProlog }}{{ $_ := set $made "TaskProlog" $name }}{{ end -}}
{{- range $name, $_ := $scripts.taskEpilog }}{{ $_ := set $made "TaskEpilog" $name }}{{ end -}}
{{- if .Values.monitoring.serviceMonitor.enabled }}{{ $_ := set $made "MetricsType" "metrics/openmetrics" }}{{ end -}}
{{- if $config.jobSubmitLua }}{{ $_ := set $made "JobSubmitPlugins" "lua" }}{{ end -}}
{{- if include "slurm.topologyPlugin" . }}{{ $_ := set $made "TopologyPlugin" (include "slurm.topologyPlugin" .) }}{{ end -}}
{{- toJson $made -}}
{{- end -}}

{{/* The option that limits the lifespan of tokens that users create for themselves. Tokens of SlurmUser have no limit. */}}
{{- define "slurm.userTokens" -}}
{{- with int64 .Values.keys.userTokenSeconds }}max_token_lifespan={{ . }}{{ else }}disable_token_creation{{ end -}}
{{- end -}}

{{/* The topology plugin for slurm.conf of Slurm 24.11. In later releases, topology.yaml itself names the plugin. */}}
{{- define "slurm.topologyPlugin" -}}
{{- if and (ne .Values.topology.kind "none") (eq .Values.slurmRelease "24.11") }}topology/{{ .Values.topology.kind }}{{ end -}}
{{- end -}}

{{/* Further parameters of slurm.conf, as JSON. A parameter in config.slurm replaces the same parameter here. */}}
{{- define "slurm.usual" -}}
{{- $usual := dict "MailProg" "/usr/bin/true" -}}
{{- if .Values.accounting.enabled -}}
{{- $_ := set $usual "AccountingStorageTRES" "gres/gpu" -}}
{{- $_ := set $usual "AccountingStoreFlags" "job_comment" -}}
{{- $_ := set $usual "JobAcctGatherType" "jobacct_gather/cgroup" -}}{{/* an error without accounting */}}
{{- if .Values.accounts.accounts }}{{ $_ := set $usual "AccountingStorageEnforce" "associations,limits,qos" }}{{ end -}}
{{- end -}}
{{- toJson $usual -}}
{{- end -}}

{{- define "slurm.conf" -}}
# The chart {{ .Chart.Name }} made this file from the values of the release {{ .Release.Name }}.
{{- $made := include "slurm.made" . | fromJson -}}
{{- $given := .Values.config.slurm -}}
{{- $names := dict -}}
{{- range $key, $_ := $made }}{{ $_ := set $names (lower $key) "" }}{{ end -}}
{{- range $key, $_ := $given -}}
{{- $same := get $names (lower $key) -}}
{{- if hasKey $names (lower $key) -}}
{{- fail (printf "config.slurm.%s: %s" $key (eq $same "" | ternary "the chart makes it of other values" (printf "it is %s, which is given, too" $same))) -}}
{{- end -}}
{{- $_ := set $names (lower $key) $key -}}
{{- end }}
{{- range $index := until (int .Values.slurmctld.replicas) }}
{{- $name := include "slurm.object" (list $ (printf "slurmctld-%d" $index)) }}
SlurmctldHost={{ $name }}({{ $name }}.{{ $.Release.Namespace }}.svc)
{{- end }}
{{- include "slurm.parameters" $made }}
{{- $usual := include "slurm.usual" . | fromJson -}}
{{- range $key, $_ := $usual }}{{ if hasKey $names (lower $key) }}{{ $_ := unset $usual $key }}{{ end }}{{ end -}}
{{- include "slurm.parameters" $usual }}
{{- include "slurm.parameters" $given }}
{{- include "slurm.named" (list "NodeName" .Values.config.nodes) }}
{{- include "slurm.named" (list "NodeSet" .Values.config.nodeSets) }}
{{- include "slurm.named" (list "PartitionName" .Values.config.partitions) }}
{{ end -}}

{{/* The configuration of the scripts of deploy/slurm: [root, path of the token's file]. */}}
{{- define "slurm.hookConfiguration" -}}
SLURM_EXTENDER_HOOKS_URLS={{ join " " (index . 0).Values.slurmExtender.hooks.urls | quote }}
SLURM_EXTENDER_HOOKS_TOKEN_FILE={{ index . 1 }}
{{ end -}}

{{/* The files of /etc/slurm in slurmctld's Pod, as JSON: the text of each file, by the file's name. */}}
{{- define "slurm.files" -}}
{{- $config := .Values.config -}}
{{- $files := dict
  "slurm.conf" (include "slurm.conf" .)
  "cgroup.conf" (printf "%s\n" (include "slurm.parameters" $config.cgroup | trim))
  "gres.conf" (printf "%s\n" (join "\n" $config.gres))
-}}
{{- with $config.topology }}{{ $_ := set $files "topology.yaml" . }}{{ end -}}
{{- with $config.jobSubmitLua }}{{ $_ := set $files "job_submit.lua" . }}{{ end -}}
{{- with $config.plugstack }}{{ $_ := set $files "plugstack.conf" (printf "%s\n" (join "\n" .)) }}{{ end -}}
{{- if .Values.slurmExtender.gate }}{{ $_ := set $files "slurm-extender-gate" (.Files.Get "files/slurm-extender-gate") }}{{ end -}}
{{- if .Values.slurmExtender.hooks.urls -}}
{{- $_ := set $files "slurm-extender-hook" (.Files.Get "files/slurm-extender-hook") -}}
{{- $_ := set $files "slurm-extender-hook.conf" (include "slurm.hookConfiguration" (list . "/etc/slurm-hooks/token")) -}}
{{- end -}}
{{- range $_, $scripts := merge (dict "files" $config.files) $config.scripts -}}
{{- range $name, $text := $scripts -}}
{{- if hasKey $files $name }}{{ fail (printf "config: there are two files %s" $name) }}{{ end -}}
{{- $_ := set $files $name $text -}}
{{- end -}}
{{- end -}}
{{- toJson $files -}}
{{- end -}}
