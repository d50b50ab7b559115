{{- define "dispatcher.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "dispatcher.fullname" -}}
{{- $name := include "dispatcher.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- .Values.fullnameOverride | default $full | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "dispatcher.selectorLabels" -}}
app.kubernetes.io/name: {{ include "dispatcher.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "dispatcher.labels" -}}
{{ include "dispatcher.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* Not empty with PostgreSQL. */ -}}
{{- define "dispatcher.postgres" -}}
{{- or .Values.databaseUrl .Values.existingSecret.keys.databaseUrl | default "" -}}
{{- end -}}

{{- /* Not empty with Redis. */ -}}
{{- define "dispatcher.redis" -}}
{{- or .Values.redisUrl .Values.existingSecret.keys.redisUrl | default "" -}}
{{- end -}}

{{- /* One process only: SQLite and the embedded index belong to one process at a time. */ -}}
{{- define "dispatcher.single" -}}
{{- if not (and (include "dispatcher.postgres" .) (include "dispatcher.redis" .)) }}true{{ end -}}
{{- end -}}

{{- define "dispatcher.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "dispatcher.fullname" .) -}}
{{- end -}}

{{- define "dispatcher.claim" -}}
{{- .Values.persistence.existingClaim | default (printf "%s-data" (include "dispatcher.fullname" .)) -}}
{{- end -}}

{{- define "dispatcher.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- /* What the schema cannot express. */ -}}
{{- define "dispatcher.check" -}}
{{- if and (gt (int .Values.replicas) 1) (include "dispatcher.single" .) -}}
{{- fail (printf "replicas is %d: more than one process needs PostgreSQL and Redis; set databaseUrl and redisUrl, or existingSecret.keys.databaseUrl and .redisUrl, or replicas: 1" (int .Values.replicas)) -}}
{{- end -}}
{{- if and .Values.databaseUrl .Values.existingSecret.keys.databaseUrl -}}
{{- fail "databaseUrl and existingSecret.keys.databaseUrl are both set; keep one of them" -}}
{{- end -}}
{{- if and .Values.redisUrl .Values.existingSecret.keys.redisUrl -}}
{{- fail "redisUrl and existingSecret.keys.redisUrl are both set; keep one of them" -}}
{{- end -}}
{{- if and .Values.persistence.backupClaim (include "dispatcher.postgres" .) -}}
{{- fail "persistence.backupClaim is for SQLite: back up PostgreSQL with pg_dump or as your provider does" -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) -}}
{{- fail "ingress.enabled needs ingress.hosts" -}}
{{- end -}}
{{- end -}}

{{- /* The variable of one setting. Lists are joined by commas, as the program reads them. */ -}}
{{- define "dispatcher.setting" -}}
{{- $value := .value -}}
{{- if kindIs "slice" $value -}}{{- $value = join "," $value -}}{{- end -}}
{{- if and (kindIs "float64" $value) (eq $value (floor $value)) -}}{{- $value = int64 $value -}}{{- end -}}
- name: DISPATCHER_{{ .key | upper }}
  value: {{ $value | toString | quote }}
{{- end -}}
