{{- define "counterweight.labels" -}}
app.kubernetes.io/name: counterweight
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* The image; takes a list of the root and the number of GPUs. */ -}}
{{- define "counterweight.image" -}}
{{- $root := first . -}}
{{ $root.Values.image.repository }}:{{ $root.Values.image.tag | default (printf "%s%s" $root.Chart.AppVersion (gt (int (last .)) 0 | ternary "-cuda" "")) }}
{{- end }}

{{- /* Flags as arguments; numbers of YAML are floating, and large ones would get an exponent. */ -}}
{{- define "counterweight.flags" -}}
{{- range $name, $value := . }}
- --{{ $name }}={{ if and (kindIs "float64" $value) (eq $value (floor $value)) }}{{ int64 $value }}{{ else if kindIs "slice" $value }}{{ join "," $value }}{{ else }}{{ $value }}{{ end }}
{{- end }}
{{- end }}

{{- define "counterweight.resources" -}}
{{- $root := first . -}}
{{- $resources := deepCopy (index . 1) -}}
{{- if gt (int (last .)) 0 }}
{{- $_ := set $resources "limits" (merge (dict "nvidia.com/gpu" (toString (int (last .)))) ($resources.limits | default dict)) }}
{{- end }}
{{- toYaml $resources }}
{{- end }}

{{- define "counterweight.threads" -}}
- name: COUNTERWEIGHT_THREADS
  valueFrom:
    resourceFieldRef:
      resource: limits.cpu
{{- end }}
