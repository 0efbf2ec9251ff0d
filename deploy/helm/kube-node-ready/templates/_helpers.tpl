{{- define "kube-node-ready.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- include "kube-node-ready.cut" (dict "name" .Release.Name "most" 40) -}}
{{- else -}}
{{- printf "%s-%s" (include "kube-node-ready.cut" (dict "name" .Release.Name "most" 24)) $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/*
A name of at most so many characters: called with (dict "name" ... "most" ...). One that is cut ends in a hash, so that two
names stay two.
*/}}
{{- define "kube-node-ready.cut" -}}
{{- if gt (len .name) .most -}}
{{- printf "%s-%s" (.name | trunc (int (sub .most 9)) | trimSuffix "-") (sha256sum .name | trunc 8) -}}
{{- else -}}
{{- .name -}}
{{- end -}}
{{- end -}}

{{/* The namespace of what the chart installs: the release's, unless a parent chart puts it elsewhere. */}}
{{- define "kube-node-ready.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end -}}

{{/* Pull secrets of this chart and of "global", where they may be plain names, as {"all": [...]}. */}}
{{- define "kube-node-ready.imagePullSecrets" -}}
{{- $all := .Values.imagePullSecrets -}}
{{- range (.Values.global | default dict).imagePullSecrets -}}
{{- $all = append $all (kindIs "string" . | ternary (dict "name" .) .) -}}
{{- end -}}
{{- dict "all" ($all | uniq) | toYaml -}}
{{- end -}}

{{/* A repository with the registry of "global" in place of its own: called with (dict "root" $ "repository" ...). */}}
{{- define "kube-node-ready.repository" -}}
{{- $registry := (.root.Values.global | default dict).imageRegistry -}}
{{- if $registry -}}
{{- printf "%s/%s" ($registry | trimSuffix "/") (regexReplaceAll "^(localhost|[^/]*[.:][^/]*)/" .repository "") -}}
{{- else -}}
{{- .repository -}}
{{- end -}}
{{- end -}}

{{/* "true" where the platform gives pods their user and group: OpenShift refuses pods that name one of their own. */}}
{{- define "kube-node-ready.platformUser" -}}
{{- $mode := dig "compatibility" "openshift" "adaptSecurityContext" .Values.adaptSecurityContext (.Values.global | default dict) -}}
{{- if or (eq $mode "force") (and (eq $mode "auto") (.Capabilities.APIVersions.Has "security.openshift.io/v1")) }}true{{ end -}}
{{- end -}}

{{/* A pod's security context, without user and group where the platform gives them: called with (dict "root" $ "context" ...). */}}
{{- define "kube-node-ready.podSecurityContext" -}}
{{- if include "kube-node-ready.platformUser" .root -}}
{{- omit .context "runAsUser" "runAsGroup" "fsGroup" "seLinuxOptions" | toYaml -}}
{{- else -}}
{{- toYaml .context -}}
{{- end -}}
{{- end -}}

{{- define "kube-node-ready.controllerName" -}}
{{- include "kube-node-ready.fullname" . }}-controller
{{- end -}}

{{- define "kube-node-ready.workerName" -}}
{{- include "kube-node-ready.fullname" . }}-worker
{{- end -}}

{{/* "controller" or "daemonset": the component that verifies nodes. */}}
{{- define "kube-node-ready.component" -}}
{{- .Values.deploymentMode -}}
{{- end -}}

{{/* The name of what verifies nodes: a Deployment or a DaemonSet, its configuration and what scrapes it. */}}
{{- define "kube-node-ready.mainName" -}}
{{- if eq .Values.deploymentMode "daemonset" }}{{ include "kube-node-ready.fullname" . }}{{ else }}{{ include "kube-node-ready.controllerName" . }}{{ end -}}
{{- end -}}

{{/* Who runs the checks: the workers' service account, or the DaemonSet's, which also writes its node. */}}
{{- define "kube-node-ready.checkingServiceAccount" -}}
{{- $own := ternary (include "kube-node-ready.fullname" .) (include "kube-node-ready.workerName" .) (eq .Values.deploymentMode "daemonset") -}}
{{- .Values.worker.serviceAccount.name | default $own -}}
{{- end -}}

{{- define "kube-node-ready.controllerServiceAccount" -}}
{{- .Values.controller.serviceAccount.name | default (include "kube-node-ready.controllerName" .) -}}
{{- end -}}

{{/* What selects an object of the chart: called with (dict "root" $ "component" "controller"). */}}
{{- define "kube-node-ready.selectorLabels" -}}
app.kubernetes.io/name: kube-node-ready
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* An object's labels, each once: the chart's own, then those of "labels", then commonLabels. Called as selectorLabels is. */}}
{{- define "kube-node-ready.labels" -}}
{{- $own := dict
  "app.kubernetes.io/version" .root.Chart.AppVersion
  "app.kubernetes.io/managed-by" .root.Release.Service
  "helm.sh/chart" (printf "%s-%s" .root.Chart.Name (.root.Chart.Version | replace "+" "_")) -}}
{{- merge (include "kube-node-ready.selectorLabels" . | fromYaml) $own (.labels | default dict) (.root.Values.commonLabels | default dict) | toYaml -}}
{{- end -}}

{{/*
The head of an object: called with (dict "root" $ "component" ... "name" ... and, where they
apply, "namespace", "labels", "annotations"). Without "namespace" the object is cluster-scoped.
*/}}
{{- define "kube-node-ready.metadata" -}}
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "kube-node-ready.labels" . | nindent 4 }}
  {{- with merge (dict) (.annotations | default dict) (.root.Values.commonAnnotations | default dict) }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* The worker's image settings: worker.image where it says something, controller.image where not. */}}
{{- define "kube-node-ready.workerImage" -}}
{{- $own := .Values.worker.image -}}
{{- $base := .Values.controller.image -}}
{{- $image := dict "repository" ($own.repository | default $base.repository) "pullPolicy" ($own.pullPolicy | default $base.pullPolicy) -}}
{{- $digest := $own.digest -}}
{{- /* A digest names one image: the controller's is the worker's only if nothing else differs. */}}
{{- if not (or $own.repository $own.tag $own.digest) }}{{ $digest = $base.digest }}{{ end }}
{{- $_ := set $image "repository" (include "kube-node-ready.repository" (dict "root" . "repository" $image.repository)) -}}
{{- $_ := set $image "tag" (toString ($own.tag | default $base.tag | default .Chart.AppVersion)) -}}
{{- if $digest }}{{ $_ := set $image "digest" $digest }}{{ end -}}
{{- toYaml $image -}}
{{- end -}}

{{/* An image reference: called with the map that has repository, tag and digest. */}}
{{- define "kube-node-ready.imageReference" -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag }}
{{- end -}}
{{- end -}}

{{/* A profile's image, completed by the worker's as the program does it (internal/config). */}}
{{- define "kube-node-ready.profileImage" -}}
{{- $digest := .image.digest -}}
{{- if not (or .image.repository .image.tag) }}{{ $digest = $digest | default .worker.digest }}{{ end -}}
{{- include "kube-node-ready.imageReference" (dict "digest" $digest "repository" (.image.repository | default .worker.repository) "tag" (.image.tag | default .worker.tag)) -}}
{{- end -}}

{{- define "kube-node-ready.controllerImage" -}}
{{- $image := .Values.controller.image -}}
{{- include "kube-node-ready.imageReference" (dict "repository" (include "kube-node-ready.repository" (dict "root" . "repository" $image.repository)) "digest" $image.digest "tag" ($image.tag | default .Chart.AppVersion)) -}}
{{- end -}}

{{/* The configuration file, which is made once for all templates that ask for it: that is half of a rendering. */}}
{{- define "kube-node-ready.config" -}}
{{- if not (hasKey . "kubeNodeReadyConfig") }}{{ $_ := set . "kubeNodeReadyConfig" (include "kube-node-ready.madeConfig" .) }}{{ end -}}
{{- .kubeNodeReadyConfig -}}
{{- end -}}

{{/* Its content: controller.config over what the chart derives from other values, and "config" over both. */}}
{{- define "kube-node-ready.madeConfig" -}}
{{- $derived := dict
  "worker" (dict
    "image" (include "kube-node-ready.workerImage" . | fromYaml)
    "serviceAccountName" (include "kube-node-ready.checkingServiceAccount" .))
  "leaderElection" (dict "id" (include "kube-node-ready.controllerName" .)) -}}
{{- with (include "kube-node-ready.imagePullSecrets" . | fromYaml).all }}{{ $_ := set $derived.worker "imagePullSecrets" . }}{{ end -}}
{{- if include "kube-node-ready.platformUser" . }}{{ $_ := set $derived.worker "fixedUser" false }}{{ end -}}
{{- $mode := include "kube-node-ready.admissionMode" . -}}
{{- if eq $mode "webhook" }}
{{- $_ := set $derived "admission" (dict "webhook" (dict "name" (printf "%s-webhook" (include "kube-node-ready.fullname" .)))) }}
{{- if .Values.webhook.certManager.enabled }}{{ $_ := set $derived.admission.webhook "certificateDir" "/etc/kube-node-ready-webhook" }}{{ end }}
{{- end -}}
{{- $config := mergeOverwrite $derived (deepCopy (.Values.controller.config | default dict)) -}}
{{- $short := .Values.config | default dict -}}
{{- with $short.dnsTestDomains }}{{ $_ := set $config.worker "dnsTestDomains" . }}{{ end -}}
{{- with $short.initialTimeout }}
{{- $_ := set $config.worker "timeoutSeconds" (mul (regexFind "^[0-9]+" . | int) (get (dict "s" 1 "m" 60 "h" 3600) (regexFind "[smh]$" .)) | int) }}
{{- end -}}
{{- $reconciliation := $config.reconciliation | default dict -}}
{{- with $short.maxRetries }}{{ $_ := set $reconciliation "maxRetries" (int .) }}{{ end -}}
{{- with $short.retryBackoff }}{{ $_ := set $reconciliation "retryBackoff" . }}{{ end -}}
{{- $_ := set $config "reconciliation" $reconciliation -}}
{{- if or $short.taintKey $short.taintValue $short.taintEffect }}
{{- $node := $config.nodeManagement | default dict }}
{{- $taints := $node.taints | default (list (dict "key" "node-ready/unverified" "value" "true" "effect" "NoSchedule")) }}
{{- if gt (len $taints) 1 }}
{{- fail (printf "config.taintKey, config.taintValue and config.taintEffect set one taint, but controller.config.nodeManagement.taints has %d: leave the former empty, or list only one taint" (len $taints)) }}
{{- end }}
{{- $taint := deepCopy (first $taints) }}
{{- with $short.taintKey }}{{ $_ := set $taint "key" . }}{{ end }}
{{- with $short.taintValue }}{{ $_ := set $taint "value" . }}{{ end }}
{{- with $short.taintEffect }}{{ $_ := set $taint "effect" . }}{{ end }}
{{- $_ := set $config "nodeManagement" (set $node "taints" (list $taint)) }}
{{- end -}}
{{- with $config.admission }}{{ $_ := set . "mode" $mode }}{{ end -}}
{{- $config | toYaml -}}
{{- end -}}

{{- define "kube-node-ready.workerNamespace" -}}
{{- $config := include "kube-node-ready.config" . | fromYaml -}}
{{- $config.worker.namespace | default (include "kube-node-ready.namespace" .) -}}
{{- end -}}

{{/* Tolerations of every configured gating taint, those of profiles included. */}}
{{- define "kube-node-ready.gatingTolerations" -}}
{{- $config := include "kube-node-ready.config" . | fromYaml -}}
{{- $taints := ($config.nodeManagement | default dict).taints | default (list (dict "key" "node-ready/unverified" "effect" "NoSchedule")) -}}
{{- range $config.profiles }}{{ $taints = concat $taints (.taints | default list) }}{{ end -}}
{{- $tolerations := list -}}
{{- range $taints }}
{{- $tolerations = append $tolerations (dict "key" .key "operator" "Exists" "effect" .effect) -}}
{{- /* On a node that runs ordinary pods a NoExecute taint goes with effect NoSchedule. */}}
{{- if eq .effect "NoExecute" }}{{ $tolerations = append $tolerations (dict "key" .key "operator" "Exists" "effect" "NoSchedule") }}{{ end -}}
{{- end -}}
{{- $tolerations | uniq | toYaml -}}
{{- end -}}

{{/*
Tolerations of the keys in rules.toleratedKeys, and of the rules that the cluster has: at an installation, the policy of
templates/ruletolerationpolicy.yaml comes after the Deployment's first pods.
*/}}
{{- define "kube-node-ready.ruleTolerations" -}}
{{- if include "kube-node-ready.servesRules" . }}
{{- $keys := .Values.rules.toleratedKeys | default list -}}
{{- if .Capabilities.APIVersions.Has "readiness.node.x-k8s.io/v1alpha1/NodeReadinessRule" }}
{{- range (lookup "readiness.node.x-k8s.io/v1alpha1" "NodeReadinessRule" "" "").items }}
{{- $key := dig "spec" "taint" "key" "" . }}
{{- if or (hasPrefix "readiness.k8s.io/" $key) (hasPrefix "startup-taint.cluster-autoscaler.kubernetes.io/" $key) }}{{ $keys = append $keys $key }}{{ end }}
{{- end }}
{{- end -}}
{{- $tolerations := list -}}
{{- range $keys | uniq | sortAlpha }}{{ $tolerations = append $tolerations (dict "key" . "operator" "Exists") }}{{ end -}}
{{- with $tolerations }}{{ toYaml . }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* "true" when the controller serves NodeReadinessRules. */}}
{{- define "kube-node-ready.servesRules" -}}
{{- $config := include "kube-node-ready.config" . | fromYaml -}}
{{- if ne (toString ($config.rules | default dict).enabled) "false" }}true{{ end -}}
{{- end -}}

{{/* "true" when the controller decides about remediation.action. */}}
{{- define "kube-node-ready.deletes" -}}
{{- $config := include "kube-node-ready.config" . | fromYaml -}}
{{- if ($config.nodeManagement | default dict).deleteFailedNodes }}true{{ end -}}
{{- end -}}

{{/* "true" when that is no dry run, so that it needs the rights. */}}
{{- define "kube-node-ready.deletesForReal" -}}
{{- $config := include "kube-node-ready.config" . | fromYaml -}}
{{- if and (include "kube-node-ready.deletes" .) (not .Values.controller.dryRun) (not (dig "nodeManagement" "remediation" "dryRun" false $config)) }}true{{ end -}}
{{- end -}}

{{/* remediation.action. */}}
{{- define "kube-node-ready.action" -}}
{{- $config := include "kube-node-ready.config" . | fromYaml -}}
{{- dig "nodeManagement" "remediation" "action" "delete" $config -}}
{{- end -}}

{{/* "true" when the controller deletes NodeClaims and Nodes for real. */}}
{{- define "kube-node-ready.removesNodes" -}}
{{- if and (include "kube-node-ready.deletesForReal" .) (eq (include "kube-node-ready.action" .) "delete") }}true{{ end -}}
{{- end -}}

{{/* "true" when the controller serves its metrics by HTTPS, to whom the API server lets have them. */}}
{{- define "kube-node-ready.secureMetrics" -}}
{{- $metrics := (include "kube-node-ready.config" . | fromYaml).metrics | default dict -}}
{{- if and $metrics.secure (ne (toString $metrics.enabled) "false") }}true{{ end -}}
{{- end -}}

{{/* What the presets of the configuration stand for, as {"all": [{"prerequisites": ..., "checks": ...}]}. */}}
{{- define "kube-node-ready.presets" -}}
{{- $config := include "kube-node-ready.config" . | fromYaml -}}
{{- $names := ($config.nodeManagement | default dict).presets | default list -}}
{{- range $config.profiles }}{{ $names = concat $names (.presets | default list) }}{{ end -}}
{{- $table := .Files.Get "files/presets.yaml" | fromYaml -}}
{{- $all := list -}}
{{- range $names | uniq }}{{ with get $table . }}{{ $all = append $all . }}{{ end }}{{ end -}}
{{- dict "all" $all | toYaml -}}
{{- end -}}

{{/* The DaemonSets that a prerequisites section names, as a list. */}}
{{- define "kube-node-ready.daemonSets" -}}
{{- $sets := .daemonSets -}}
{{- if kindIs "map" $sets }}{{ $sets = $sets.named }}{{ end -}}
{{- if kindIs "slice" $sets }}{{ toYaml $sets }}{{ else }}[]{{ end -}}
{{- end -}}

{{/* Every prerequisites section of the configuration, those of presets included, as {"all": [...]}. */}}
{{- define "kube-node-ready.prerequisites" -}}
{{- $config := include "kube-node-ready.config" . | fromYaml -}}
{{- $all := list -}}
{{- with ($config.nodeManagement | default dict).prerequisites }}{{ $all = append $all . }}{{ end -}}
{{- range $config.profiles }}{{ with .prerequisites }}{{ $all = append $all . }}{{ end }}{{ end -}}
{{- range (include "kube-node-ready.presets" . | fromYaml).all }}{{ $all = append $all .prerequisites }}{{ end -}}
{{- /* What a DaemonSet provides is a section in itself. */}}
{{- range $all }}{{ range include "kube-node-ready.daemonSets" . | fromYamlArray }}{{ with .provides }}{{ $all = append $all . }}{{ end }}{{ end }}{{ end -}}
{{- dict "all" $all | toYaml -}}
{{- end -}}

{{/* Every check of the configuration, those of profiles and presets included, as {"all": [...]}. */}}
{{- define "kube-node-ready.checks" -}}
{{- $config := include "kube-node-ready.config" . | fromYaml -}}
{{- $all := $config.worker.checks | default list -}}
{{- range $config.profiles }}{{ $all = concat $all (.checks | default list) }}{{ end -}}
{{- range (include "kube-node-ready.presets" . | fromYaml).all }}{{ $all = concat $all (.checks | default list) }}{{ end -}}
{{- dict "all" $all | toYaml -}}
{{- end -}}

{{/*
The name of the ConfigMap with this configuration: another configuration is another ConfigMap. Not so for a DaemonSet, whose pods
are replaced all at once.
*/}}
{{- define "kube-node-ready.configName" -}}
{{- if eq .Values.deploymentMode "daemonset" -}}
{{- include "kube-node-ready.mainName" . -}}
{{- else -}}
{{- printf "%s-%s" (include "kube-node-ready.controllerName" .) (include "kube-node-ready.config" . | sha256sum | trunc 10) -}}
{{- end -}}
{{- end -}}
