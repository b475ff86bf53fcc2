{{- define "peeklock.name" -}}
{{- if contains "peeklock" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-peeklock" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "peeklock.selector" -}}
app.kubernetes.io/name: peeklock
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "peeklock.labels" -}}
{{ include "peeklock.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "peeklock.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "peeklock.name" .) }}{{ else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}

{{- define "peeklock.keySecret" -}}
{{- .Values.auth.existingSecret | default (printf "%s-key" (include "peeklock.name" .)) }}
{{- end }}

{{- define "peeklock.encrypted" -}}
{{- if and .Values.tls.existingSecret .Values.peers.tlsSecret .Values.peers.gossipSecret }}yes{{ end }}
{{- end }}

{{- define "peeklock.probeScheme" -}}
{{- if and .Values.tls.existingSecret .Values.tls.require }}HTTPS{{ else }}HTTP{{ end }}
{{- end }}
