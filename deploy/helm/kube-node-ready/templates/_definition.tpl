{{/*
"true" where a definition that is there has a version, or in a version a field, that ours does not have. Called with (dict "there" spec
"ours" spec).
*/}}
{{- define "kube-node-ready.knowsMore" -}}
{{- $ours := dict }}
{{- range .ours.versions }}{{ $_ := set $ours .name .schema.openAPIV3Schema }}{{ end }}
{{- $more := false }}
{{- range .there.versions }}
{{- if not (hasKey $ours .name) }}{{ $more = true }}
{{- else if include "kube-node-ready.hasMoreFields" (dict "there" .schema.openAPIV3Schema "ours" (get $ours .name)) }}{{ $more = true }}
{{- end }}
{{- end }}
{{- if $more }}true{{ end -}}
{{- end -}}

{{- define "kube-node-ready.hasMoreFields" -}}
{{- $ours := .ours.properties | default dict }}
{{- $more := false }}
{{- range $name, $field := .there.properties }}
{{- if not (hasKey $ours $name) }}{{ $more = true }}
{{- else if include "kube-node-ready.hasMoreFields" (dict "there" $field "ours" (get $ours $name)) }}{{ $more = true }}
{{- end }}
{{- end }}
{{- $items := .ours.items | default dict }}
{{- with .there.items }}{{ if include "kube-node-ready.hasMoreFields" (dict "there" . "ours" $items) }}{{ $more = true }}{{ end }}{{ end }}
{{- if $more }}true{{ end -}}
{{- end -}}
