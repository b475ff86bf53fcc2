{{- /* The labels of a pod of the chart that is a client. They are not those of members, so that services send no client to it.
Takes a list of the root and what the pod is for. */}}
{{- define "peeklock.clientLabels" -}}
app.kubernetes.io/name: peeklock-{{ index . 1 }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
{{- with (index . 0).Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The spec of a pod that runs one command as a client with the operator key. Takes a dict of root, name, args, and optionally env,
envFrom, mounts, volumes, resources, and account: a service account whose token the pod gets. */}}
{{- define "peeklock.clientPod" -}}
{{- $tls := include "peeklock.tlsSecret" .root }}
{{- $values := .root.Values -}}
restartPolicy: Never
serviceAccountName: {{ .account | default (include "peeklock.serviceAccount" .root) }}
automountServiceAccountToken: {{ empty .account | ternary "false" "true" }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with $values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: {{ .name }}
    image: "{{ $values.image.repository }}:{{ $values.image.tag | default .root.Chart.AppVersion }}"
    imagePullPolicy: {{ $values.image.pullPolicy }}
    args: {{- toYaml .args | nindent 6 }}
    env:
      - {name: PEEKLOCK_SERVER, value: "http{{ if $tls }}s{{ end }}://{{ include "peeklock.name" .root }}.{{ .root.Release.Namespace }}.svc:{{ $values.service.ports.admin }}"}
      - {name: PEEKLOCK_KEY_NAME, value: {{ $values.auth.keyName | quote }}}
      - name: PEEKLOCK_KEY
        valueFrom: {secretKeyRef: {name: {{ include "peeklock.keySecret" .root }}, key: key}}
      {{- if $tls }}
      # The certificate itself is trusted, so that an authority is not needed.
      - {name: PEEKLOCK_CA, value: /etc/peeklock/tls/tls.crt}
      {{- end }}
      {{- with .env }}{{ toYaml . | nindent 6 }}{{ end }}
    {{- with .envFrom }}
    envFrom: {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    resources: {{- toYaml (.resources | default (dict "requests" (dict "cpu" "50m" "memory" "64Mi") "limits" (dict "memory" "256Mi"))) | nindent 6 }}
    {{- if or $tls .mounts }}
    volumeMounts:
      {{- if $tls }}
      - {name: tls, mountPath: /etc/peeklock/tls, readOnly: true}
      {{- end }}
      {{- with .mounts }}{{ toYaml . | nindent 6 }}{{ end }}
    {{- end }}
{{- if or $tls .volumes }}
volumes:
  {{- if $tls }}
  - name: tls
    secret: {secretName: {{ $tls }}, defaultMode: 0440, items: [{key: tls.crt, path: tls.crt}]}
  {{- end }}
  {{- with .volumes }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end }}
{{- end }}
