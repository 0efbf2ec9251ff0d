{{/*
How nodes are tainted at their creation: off, policy or webhook. "auto" is decided here, by the APIs that are served. A dry run
taints none.
*/}}
{{- define "kube-node-ready.admissionMode" -}}
{{- /* A plain off is false to the YAML that Helm reads. */}}
{{- $mode := ((.Values.controller.config | default dict).admission | default dict).mode | default "off" -}}
{{- if .Values.controller.dryRun -}}
off
{{- else if eq $mode "auto" -}}
{{- ternary "policy" "webhook" (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy") -}}
{{- else -}}
{{- $mode -}}
{{- end -}}
{{- end -}}

{{/* Whether a label selector matches variables.labels, or what else "labels" names: an expression of CEL. */}}
{{- define "kube-node-ready.celSelector" -}}
{{- $labels := .labels -}}
{{- $all := list -}}
{{- range $key, $value := .selector.matchLabels }}
{{- $all = append $all (printf "(%q in %s && %s[%q] == %q)" $key $labels $labels $key (toString $value)) -}}
{{- end -}}
{{- range .selector.matchExpressions }}
{{- $has := printf "%q in %s" .key $labels -}}
{{- $one := printf "(%s && %s[%q] in %s)" $has $labels .key (.values | default list | toJson) -}}
{{- if eq .operator "In" }}{{ $all = append $all $one }}
{{- else if eq .operator "NotIn" }}{{ $all = append $all (printf "!%s" $one) }}
{{- else if eq .operator "Exists" }}{{ $all = append $all (printf "(%s)" $has) }}
{{- else if eq .operator "DoesNotExist" }}{{ $all = append $all (printf "!(%s)" $has) }}
{{- else }}{{ fail (printf "controller.config: the operator of a selector is %q; it must be In, NotIn, Exists or DoesNotExist" (toString .operator)) }}
{{- end }}
{{- end -}}
{{- join " && " $all | default "true" -}}
{{- end -}}

{{/* The labels of control-plane nodes, as a JSON list: marks.ControlPlaneLabels. */}}
{{- define "kube-node-ready.controlPlaneLabels" -}}
["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master", "node-role.kubernetes.io/controlplane",
 "node-role.kubernetes.io/etcd", "node.kubernetes.io/microk8s-controlplane"]
{{- end -}}

{{/* The labels of virtual nodes, each a key and a value, as a JSON list: marks.VirtualLabels. */}}
{{- define "kube-node-ready.virtualLabels" -}}
[["type", "virtual-kubelet"], ["type", "kwok"], ["liqo.io/type", "virtual-node"], ["eks.amazonaws.com/compute-type", "fargate"]]
{{- end -}}

{{/*
Which nodes are tainted at their creation, as matchConditions: what decide.TaintsOnCreation says. Policy and webhook have them in common.
*/}}
{{- define "kube-node-ready.birthConditions" -}}
{{- $management := (include "kube-node-ready.config" . | fromYaml).nodeManagement | default dict -}}
{{- $labels := "object.metadata.?labels.orValue({})" -}}
{{- if not $management.includeControlPlane }}
- name: not-a-control-plane
  expression: {{ printf "!%s.exists(key, key in %s)" (include "kube-node-ready.controlPlaneLabels" . | fromJsonArray | toJson) $labels | squote }}
{{- end }}
- name: not-of-an-aks-system-pool
  expression: {{ printf "%s[?%q].orValue(\"\") != \"system\"" $labels "kubernetes.azure.com/mode" | squote }}
- name: linux
  expression: {{ printf "%s[?%q].orValue(\"\") in [\"\", \"linux\"]" $labels "kubernetes.io/os" | squote }}
- name: not-virtual
  expression: {{ printf "!%s.exists(label, %s[?label[0]].orValue(\"\") == label[1])" (include "kube-node-ready.virtualLabels" . | fromJsonArray | toJson) $labels | squote }}
- name: not-opted-out
  expression: {{ printf "object.metadata.?annotations[?%q].orValue(\"\") != \"true\"" "node-ready/skip" | squote }}
{{- with $management.nodeSelector }}
- name: selected
  expression: {{ include "kube-node-ready.celSelector" (dict "selector" . "labels" $labels) | squote }}
{{- end }}
{{- end -}}

{{/* The taints that gate a node by its labels, as CEL: those of the first profile that matches, which may be the defaults. */}}
{{- define "kube-node-ready.celTaints" -}}
{{- $config := include "kube-node-ready.config" . | fromYaml -}}
{{- $defaults := ($config.nodeManagement | default dict).taints | default (list (dict "key" "node-ready/unverified" "value" "true" "effect" "NoSchedule")) -}}
{{- range $config.profiles }}
{{- include "kube-node-ready.celSelector" (dict "selector" .nodeSelector "labels" "variables.labels") }}
  ? {{ include "kube-node-ready.celTaintList" (.taints | default $defaults) }}
  : {{ end -}}
{{- include "kube-node-ready.celTaintList" $defaults -}}
{{- end -}}

{{- define "kube-node-ready.celTaintList" -}}
{{- $taints := list -}}
{{- range . }}
{{- $taint := dict "key" .key "effect" .effect -}}
{{- with .value }}{{ $_ := set $taint "value" (toString .) }}{{ end -}}
{{- $taints = append $taints $taint -}}
{{- end -}}
{{- toJson $taints -}}
{{- end -}}

{{/* What policy and webhook are asked about. */}}
{{- define "kube-node-ready.birthRule" -}}
apiGroups: [""]
apiVersions: [v1]
operations: [CREATE]
resources: [nodes]
scope: Cluster
{{- end -}}
