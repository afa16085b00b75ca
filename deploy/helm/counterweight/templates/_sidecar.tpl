{{- /* The server as a native sidecar: an init container that restarts. */ -}}
{{- define "counterweight.sidecar" -}}
{{- $sidecar := .Values.sidecar -}}
name: counterweight
restartPolicy: Always
image: {{ include "counterweight.image" (list . $sidecar.gpus) }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args:
  - --listen=unix:/run/counterweight/server.sock
  - --shared_memory_socket=/run/counterweight/memory.sock
  - --socket_mode=0660
  {{- with $sidecar.uids }}
  - --shared_memory_uids={{ join "," . }}
  {{- end }}
  {{- if $sidecar.metrics.podNetwork }}
  - --metrics_listen=0.0.0.0:9464
  - --allow_insecure
  {{- else }}
  - --metrics_listen=127.0.0.1:9464
  {{- end }}
  {{- include "counterweight.flags" $sidecar.flags | trim | nindent 2 }}
env:
  {{- include "counterweight.threads" . | nindent 2 }}
{{- if $sidecar.metrics.podNetwork }}
ports:
  - name: metrics
    containerPort: 9464
{{- end }}
startupProbe:
  exec:
    command: [/usr/bin/counterweight-server, "--probe=unix:/run/counterweight/server.sock"]
  periodSeconds: 1
  timeoutSeconds: 2
  failureThreshold: 60
livenessProbe:
  exec:
    command: [/usr/bin/counterweight-server, "--probe=unix:/run/counterweight/server.sock", --probe_timeout=4]
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
resources:
  {{- include "counterweight.resources" (list . $sidecar.resources $sidecar.gpus) | nindent 2 }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
  seccompProfile:
    type: RuntimeDefault
volumeMounts:
  - name: counterweight
    mountPath: /run/counterweight
{{- end }}

{{- /* Adds the sidecar to each pod in a manifest, in place: takes a list of the root and a map. */ -}}
{{- define "counterweight.inject" -}}
{{- $root := first . -}}
{{- $object := last . -}}
{{- $mount := dict "name" "counterweight" "mountPath" "/run/counterweight" -}}
{{- $target := dict "name" "COUNTERWEIGHT_TARGET" "value" "unix:/run/counterweight/server.sock" -}}
{{- $found := false -}}
{{- if kindIs "slice" (get $object "containers") -}}
  {{- range $container := $object.containers -}}
    {{- if eq $container.name $root.Values.sidecar.container -}}
      {{- $found = true -}}
      {{- $_ := set $container "env" (prepend ($container.env | default list) $target) -}}
      {{- $_ := set $container "volumeMounts" (prepend ($container.volumeMounts | default list) $mount) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if $found -}}
  {{- $server := include "counterweight.sidecar" $root | fromYaml -}}
  {{- $folder := dict "name" "counterweight" "emptyDir" (dict "medium" "Memory" "sizeLimit" "1Mi") -}}
  {{- $_ := set $object "initContainers" (prepend ($object.initContainers | default list) $server) -}}
  {{- $_ := set $object "volumes" (prepend ($object.volumes | default list) $folder) -}}
  {{- $_ := set $object "securityContext" (merge ($object.securityContext | default dict) (dict "fsGroup" 65532)) -}}
  {{- if gt (int $root.Values.sidecar.gpus) 0 -}}
    {{- $_ := set $object "shareProcessNamespace" true -}}
  {{- end -}}
found
{{- else -}}
  {{- range $key, $value := $object -}}
    {{- if kindIs "map" $value -}}
      {{- include "counterweight.inject" (list $root $value) -}}
    {{- else if kindIs "slice" $value -}}
      {{- range $item := $value -}}
        {{- if kindIs "map" $item -}}{{- include "counterweight.inject" (list $root $item) -}}{{- end -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}
