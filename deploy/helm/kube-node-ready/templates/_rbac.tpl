{{/*
A binding of a role to the service account of the component: called with (dict "root" $
"component" "controller"|"worker" "kind" "Role"|"ClusterRole" "name" ... "namespace" ...).
*/}}
{{- define "kube-node-ready.binding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
{{ include "kube-node-ready.metadata" . }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    {{- if eq .component "controller" }}
    name: {{ include "kube-node-ready.controllerServiceAccount" .root }}
    namespace: {{ include "kube-node-ready.namespace" .root }}
    {{- else }}
    name: {{ (include "kube-node-ready.config" .root | fromYaml).worker.serviceAccountName }}
    namespace: {{ include "kube-node-ready.workerNamespace" .root }}
    {{- end }}
{{- end -}}

{{/* The mode of prerequisites.daemonSets, which may stand there without its key; empty for a list. */}}
{{- define "kube-node-ready.daemonSetsMode" -}}
{{- if kindIs "string" .daemonSets }}{{ .daemonSets }}
{{- else if kindIs "map" .daemonSets }}{{ .daemonSets.mode }}
{{- end }}
{{- end -}}

{{/* The rules for prerequisites.daemonSets. */}}
{{- define "kube-node-ready.daemonSetRules" -}}
{{- list
  (dict "apiGroups" (list "apps") "resources" (list "daemonsets") "verbs" (list "list" "watch"))
  (dict "apiGroups" (list "") "resources" (list "pods") "verbs" (list "list" "watch")) | toYaml -}}
{{- end -}}

{{/* The rule for one entry of prerequisites.resources, or for verbs on the object of an action: the kind's regular plural. */}}
{{- define "kube-node-ready.resourceRule" -}}
{{- $group := "" -}}
{{- if contains "/" .apiVersion }}{{ $group = regexReplaceAll "/.*$" .apiVersion "" }}{{ end -}}
{{- $plural := lower .kind -}}
{{- if regexMatch "s$" $plural }}{{ $plural = printf "%ses" $plural }}
{{- else if regexMatch "y$" $plural }}{{ $plural = regexReplaceAll "y$" $plural "ies" }}
{{- else }}{{ $plural = printf "%ss" $plural }}
{{- end }}
{{- list (dict "apiGroups" (list $group) "resources" (list $plural) "verbs" (list "list" "watch")) | toYaml -}}
{{- end -}}
