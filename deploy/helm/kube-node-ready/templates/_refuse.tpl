{{/*
Sections without which templates fail or leave objects out: a new one is missing after an upgrade with --reuse-values, and null
removes one. Included by the template that Helm renders first.
*/}}
{{- define "kube-node-ready.complete" -}}
{{- $sections := list "enabled" "deploymentMode" "controller" "controller.image" "controller.serviceAccount" "controller.rbac"
  "worker" "worker.image" "worker.serviceAccount" "service" "serviceMonitor" "podMonitor" "prometheusRule" "grafanaDashboard"
  "podDisruptionBudget" "networkPolicy" "webhook" "webhook.service" "webhook.certManager" "rules" "priorityAndFairness"
  "priorityAndFairness.controller" "priorityAndFairness.worker" "pluginRoles" "admissionPolicy" "criticalPodsQuota" "commonAnnotations"
  "imagePullSecrets" "controller.livenessProbe" "controller.readinessProbe" "controller.podAnnotations" -}}
{{- range $section := $sections -}}
{{- $value := $.Values -}}
{{- range splitList "." $section }}{{ $value = index $value . }}{{ end -}}
{{- if kindIs "invalid" $value -}}
{{- fail (printf "the value %s is missing or null: upgrade with --reset-then-reuse-values instead of --reuse-values, or remove null from your values" $section) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
What the controller would refuse at its start and a schema cannot: values that do not go together. The controller's own words are
in internal/config; that both refuse the same is tested.
*/}}
{{- define "kube-node-ready.refuse" -}}
{{- $config := include "kube-node-ready.config" . | fromYaml -}}
{{- $at := "controller.config." -}}
{{- range $who, $account := dict "controller" .Values.controller.serviceAccount "worker" .Values.worker.serviceAccount -}}
{{- $used := or (eq $who "worker") (eq $.Values.deploymentMode "controller") -}}
{{- $elsewhere := and (eq $who "worker") (dig "worker" "serviceAccountName" "" ($.Values.controller.config | default dict)) -}}
{{- if not (or $account.create $account.name $elsewhere (not $used)) -}}
{{- fail (printf "%s.serviceAccount.create is false, and %s.serviceAccount.name is empty: set name to an existing service account, or set create to true" $who $who) -}}
{{- end -}}
{{- end -}}
{{- $metrics := $config.metrics | default dict -}}
{{- $port := int ($metrics.port | default 8080) -}}
{{- if and (ne (toString $metrics.enabled) "false") (eq $port (int (dig "health" "port" 8081 $config))) -}}
{{- fail (printf "%shealth.port: %d equals metrics.port; choose another port" $at $port) -}}
{{- end -}}
{{- if and $metrics.certificateDir (not $metrics.secure) -}}
{{- fail (printf "%smetrics.certificateDir: has no effect while secure is false; set secure to true, or remove this key" $at) -}}
{{- end -}}
{{- $reconciliation := $config.reconciliation | default dict -}}
{{- $initial := int ($reconciliation.initialBackoffSeconds | default 1) -}}
{{- $max := int ($reconciliation.maxBackoffSeconds | default 30) -}}
{{- if gt $initial $max -}}
{{- fail (printf "%sreconciliation.initialBackoffSeconds: %d must be at most maxBackoffSeconds (%d)" $at $initial $max) -}}
{{- end -}}
{{- $kubernetes := $config.kubernetes | default dict -}}
{{- if and $kubernetes.burst (not $kubernetes.qps) -}}
{{- fail (printf "%skubernetes.burst: has no effect without qps; set qps, or remove this key" $at) -}}
{{- end -}}
{{- $rules := $config.rules | default dict -}}
{{- if eq (toString $rules.enabled) "false" -}}
{{- range $key := list "takeOver" "staleAfter" "maxClosedPercent" -}}
{{- if not (has (get $rules $key | default "0s" | toString) (list "0s" "0" "false")) -}}
{{- fail (printf "%srules.%s: has no effect while rules.enabled is false; remove one of the two" $at $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $management := $config.nodeManagement | default dict -}}
{{- include "kube-node-ready.refuseTaints" (dict "taints" $management.taints "at" (printf "%snodeManagement.taints" $at)) -}}
{{- $prerequisites := $management.prerequisites | default dict -}}
{{- $names := list -}}
{{- range $i, $profile := $config.profiles -}}
{{- if has $profile.name $names -}}
{{- fail (printf "%sprofiles[%d].name: %s is the name of another profile" $at $i $profile.name) -}}
{{- end -}}
{{- $names = append $names $profile.name -}}
{{- include "kube-node-ready.refuseTaints" (dict "taints" $profile.taints "at" (printf "%sprofiles[%d].taints" $at $i)) -}}
{{- end -}}
{{- range (include "kube-node-ready.prerequisites" . | fromYaml).all -}}
{{- range include "kube-node-ready.daemonSets" . | fromYamlArray -}}
{{- if not (or .anyOf .selector (and .namespace .name)) -}}
{{- fail (printf "%snodeManagement.prerequisites.daemonSets: an entry needs namespace and name, anyOf or selector; this one has only %s" $at (keys . | sortAlpha | join ", ")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $key, $list := dict "worker.checks" $config.worker.checks -}}
{{- $seen := list -}}
{{- range $i, $check := $list -}}
{{- if has $check.name $seen -}}
{{- fail (printf "%s%s[%d].name: %s is the name of another check" $at $key $i $check.name) -}}
{{- end -}}
{{- $seen = append $seen $check.name -}}
{{- end -}}
{{- end -}}
{{- if and (hasKey $config.worker "checks") (kindIs "slice" $config.worker.checks) (not $config.worker.checks) (not $config.worker.dnsTestDomains) (not $management.presets) -}}
{{- $holds := false -}}
{{- range $key, $value := $prerequisites }}{{ if and $value (ne (toString $value) "none") }}{{ $holds = true }}{{ end }}{{ end -}}
{{- if not $holds -}}
{{- fail (printf "%sworker.checks: is empty, and so is nodeManagement.prerequisites, so nodes would be released at once; name a prerequisite, or remove checks to run the built-in checks" $at) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Taints that are there twice, or that others put back: called with (dict "taints" ... "at" ...). */}}
{{- define "kube-node-ready.refuseTaints" -}}
{{- $seen := list -}}
{{- $at := .at -}}
{{- range $i, $taint := .taints -}}
{{- $pair := printf "%s:%s" $taint.key $taint.effect -}}
{{- if has $pair $seen }}{{ fail (printf "%s[%d]: %s is listed twice" $at $i $pair) }}{{ end -}}
{{- $seen = append $seen $pair -}}
{{- if regexMatch "^(node\\.kubernetes\\.io|node-role\\.kubernetes\\.io|node\\.cloudprovider\\.kubernetes\\.io|karpenter\\.sh)/" $taint.key -}}
{{- fail (printf "%s[%d].key: %s belongs to Kubernetes or Karpenter, which would add it again; choose a key of your own" $at $i $taint.key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
