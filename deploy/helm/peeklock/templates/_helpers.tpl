{{- define "peeklock.name" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains "peeklock" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-peeklock" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
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
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The annotations of an object: those of its own, and those of all objects. Takes a list of the root and the own ones. */}}
{{- define "peeklock.annotations" -}}
{{- with merge (dict) (index . 1 | default dict) (index . 0).Values.commonAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
{{- end }}
{{- end }}

{{- /* The secrets with certificates: existing ones, or those that cert-manager writes. */}}
{{- define "peeklock.tlsSecret" -}}
{{- .Values.tls.existingSecret | default (.Values.certManager.enabled | ternary (printf "%s-clients" (include "peeklock.name" .)) "") }}
{{- end }}

{{- define "peeklock.peersSecret" -}}
{{- .Values.peers.tlsSecret | default (.Values.certManager.enabled | ternary (printf "%s-peers" (include "peeklock.name" .)) "") }}
{{- end }}

{{- define "peeklock.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "peeklock.name" .) }}{{ else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}

{{- define "peeklock.keySecret" -}}
{{- .Values.auth.existingSecret | default (printf "%s-key" (include "peeklock.name" .)) }}
{{- end }}

{{- define "peeklock.encrypted" -}}
{{- if and (include "peeklock.tlsSecret" .) (include "peeklock.peersSecret" .) .Values.peers.gossipSecret }}yes{{ end }}
{{- end }}

{{- define "peeklock.probeScheme" -}}
{{- if and (include "peeklock.tlsSecret" .) .Values.tls.require }}HTTPS{{ else }}HTTP{{ end }}
{{- end }}
