{{/*
"true" where the API server has ValidatingAdmissionPolicy. One whose kinds are not known, as in helm template without
--api-versions, has it: Kubernetes has it since 1.30, which the chart asks for.
*/}}
{{- define "kube-node-ready.hasPolicies" -}}
{{- $kinds := .Capabilities.APIVersions -}}
{{- if or (not ($kinds.Has "v1/Node")) ($kinds.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy") }}true{{ end -}}
{{- end -}}

{{/* "true" where a policy of admissionPolicy is installed. Called with (dict "root" $ "policy" "nodes"). */}}
{{- define "kube-node-ready.limits" -}}
{{- $served := include "kube-node-ready.hasPolicies" .root -}}
{{- $on := get .root.Values.admissionPolicy .policy | toString -}}
{{- if eq $on "auto" }}{{ $on = toString .root.Values.admissionPolicy.enabled }}{{ end -}}
{{- if or (eq $on "true") (and (eq $on "auto") (ne .policy "pods") $served) }}true{{ end -}}
{{- end -}}

{{/* "true" where the installation puts rules' marks on nodes. */}}
{{- define "kube-node-ready.marksForRules" -}}
{{- if eq .Values.deploymentMode "controller" }}{{ include "kube-node-ready.servesRules" . }}{{ end -}}
{{- end -}}

{{/* The key of the label of verified nodes. */}}
{{- define "kube-node-ready.verifiedLabel" -}}
{{- $node := (include "kube-node-ready.config" . | fromYaml).nodeManagement | default dict -}}
{{- ($node.verifiedLabel | default dict).key | default "node-ready/verified" -}}
{{- end -}}

{{/*
The validation that a write leaves a Node's labels or annotations as they are, but for some keys. Called with (dict "map"
"labels" "but" which keys k may change, in CEL, "message" what is said to who may not). A policy sees the request after mutation,
so the message names the keys, and that another policy may have changed them.
*/}}
{{- define "kube-node-ready.keepsMap" -}}
- expression: >-
    object == null || oldObject == null ||
    object.metadata.?{{ .map }}.orValue({}).all(k, {{ .but }} ||
    oldObject.metadata.?{{ .map }}[?k] == optional.of(object.metadata.{{ .map }}[k])) &&
    oldObject.metadata.?{{ .map }}.orValue({}).all(k, {{ .but }} || k in object.metadata.?{{ .map }}.orValue({}))
  reason: Forbidden
  message: {{ .message }}
  messageExpression: >-
    {{ .message | toJson }} + "; this request changes " +
    (object.metadata.?{{ .map }}.orValue({}).filter(k, !({{ .but }}) &&
    oldObject.metadata.?{{ .map }}[?k] != optional.of(object.metadata.{{ .map }}[k])) +
    oldObject.metadata.?{{ .map }}.orValue({}).filter(k, !({{ .but }}) && !(k in object.metadata.?{{ .map }}.orValue({})))).join(", ") +
    ". If a mutating webhook or policy does that, have it leave out this account"
{{- end -}}

{{/*
What an account of ours may change of a Node, as validations: the marks that the configuration names. Called with (dict "root" $ "who"
"kube-node-ready's controller").
*/}}
{{- define "kube-node-ready.nodeMarks" -}}
{{- $node := (include "kube-node-ready.config" .root | fromYaml).nodeManagement | default dict }}
{{- $label := include "kube-node-ready.verifiedLabel" .root }}
{{- $rules := include "kube-node-ready.marksForRules" .root }}
{{- /* Of the type that remediation.condition names, only what has our reason is ours. */}}
{{- $reason := "NodeReadyVerificationFailed" }}
{{- $asked := "" }}
{{- if and (include "kube-node-ready.deletesForReal" .root) (eq (include "kube-node-ready.action" .root) "condition") }}
{{- $asked = dig "remediation" "condition" "type" "node-ready/RemediationRequired" $node }}
{{- end }}
{{- $annotations := list "node-ready/record" "node-ready/verify-completed" "node-ready/verify-result" }}
{{- with $node.completedAnnotation }}{{ $annotations = append $annotations . }}{{ end }}
{{- if $rules }}{{ $annotations = concat $annotations (list "node-ready/rules" "node-ready/rules-released") }}{{ end }}
{{- $annotation := printf "k in %s" ($annotations | toJson) }}
{{- $taints := list }}
{{- range include "kube-node-ready.gatingTolerations" .root | fromYamlArray }}
{{- $taints = append $taints (printf "t.key == %s && t.effect == %s" (squote .key) (squote .effect)) }}
{{- end }}
{{- if $rules }}
{{- $annotation = printf "(%s || k.startsWith('readiness.k8s.io/bootstrap-completed-'))" $annotation }}
{{- $annotations = append $annotations "readiness.k8s.io/bootstrap-completed-*" }}
{{- $taints = append $taints "t.key.startsWith('readiness.k8s.io/')" }}
{{- $taints = append $taints "t.key.startsWith('startup-taint.cluster-autoscaler.kubernetes.io/')" }}
{{- end -}}
{{ include "kube-node-ready.keepsMap" (dict "map" "labels" "but" (printf "k == %s" (squote $label))
  "message" (printf "%s may change no label but %s" .who $label)) }}
{{ include "kube-node-ready.keepsMap" (dict "map" "annotations" "but" $annotation
  "message" (printf "%s may change no annotation but %s" .who (join ", " $annotations))) }}
- expression: >-
    object == null || oldObject == null ||
    object.metadata.?finalizers.orValue([]) == oldObject.metadata.?finalizers.orValue([]) &&
    object.metadata.?ownerReferences.orValue([]) == oldObject.metadata.?ownerReferences.orValue([]) &&
    object.spec.?unschedulable.orValue(false) == oldObject.spec.?unschedulable.orValue(false) &&
    object.spec.?providerID.orValue('') == oldObject.spec.?providerID.orValue('') &&
    object.spec.?podCIDRs.orValue([]) == oldObject.spec.?podCIDRs.orValue([]) &&
    object.spec.?taints.orValue([]).filter(t, !({{ join " || " $taints }})) ==
    oldObject.spec.?taints.orValue([]).filter(t, !({{ join " || " $taints }}))
  reason: Forbidden
  message: {{ .who }} may change only its own taints in a node's spec
- expression: >-
    object == null || oldObject == null ||
    {{- range $field := list "capacity" "allocatable" "addresses" "daemonEndpoints" "nodeInfo" "images" "volumesInUse" "volumesAttached" }}
    object.status.?{{ $field }} == oldObject.status.?{{ $field }} &&
    {{- end }}
    object.status.?conditions.orValue([]).filter(c, c.type != 'node-ready/Verified'
    {{- with $asked }} && !(c.type == {{ squote . }} && c.?reason.orValue('') == '{{ $reason }}'){{ end }}) ==
    oldObject.status.?conditions.orValue([]).filter(c, c.type != 'node-ready/Verified' &&
    (c.?reason.orValue('') != '{{ $reason }}' ||
    {{- with $asked }} c.type != {{ squote . }} &&{{ end }}
    object.status.?conditions.orValue([]).exists(o, o.type == c.type)))
  reason: Forbidden
  message: >-
    {{ .who }} may change only the condition node-ready/Verified{{ with $asked }} and, with reason {{ $reason }}, {{ . }}{{ end }} in a node's status,
    and remove conditions with reason {{ $reason }}
{{- end -}}

{{/* What puts a policy into force: called with (dict "root" $ "component" ... "name" ...), the policy's own. */}}
{{- define "kube-node-ready.policyBinding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
{{ include "kube-node-ready.metadata" . }}
spec:
  policyName: {{ .name }}
  validationActions: [Deny]
{{- end -}}

{{/* The user names of our service accounts. */}}
{{- define "kube-node-ready.controllerUser" -}}
system:serviceaccount:{{ include "kube-node-ready.namespace" . }}:{{ include "kube-node-ready.controllerServiceAccount" . }}
{{- end -}}
{{- define "kube-node-ready.workerUser" -}}
system:serviceaccount:{{ include "kube-node-ready.workerNamespace" . }}:{{ (include "kube-node-ready.config" . | fromYaml).worker.serviceAccountName }}
{{- end -}}

{{/* The name of a pod that verifies a node or probes one: internal/workerpod makes it. */}}
{{- define "kube-node-ready.workerPodName" -}}
^(verify|probe)-.*-[0-9a-f]{10}-[0-9]+$
{{- end -}}

{{/* "true" where a container of the configuration asks for no more than Pod Security "restricted" gives. */}}
{{- define "kube-node-ready.restricted" -}}
{{- $s := .securityContext | default dict -}}
{{- $capabilities := $s.capabilities | default dict -}}
{{- $more := or $s.privileged $s.windowsOptions (ne (toString $s.allowPrivilegeEscalation) "false") (not (has "ALL" $capabilities.drop)) (without ($capabilities.add | default list) "NET_BIND_SERVICE")
  (eq (toString $s.runAsNonRoot) "false") (eq (toString $s.runAsUser) "0") (not (has (dig "seccompProfile" "type" "RuntimeDefault" $s) (list "RuntimeDefault" "Localhost"))) (ne ($s.procMount | default "Default") "Default") -}}
{{- if not $more }}true{{ end -}}
{{- end -}}

{{/* "true" where Pod Security "restricted" would reject the controller or a worker. */}}
{{- define "kube-node-ready.needsPrivileges" -}}
{{- $config := include "kube-node-ready.config" . | fromYaml -}}
{{- $needs := .Values.controller.hostNetwork -}}
{{- $volumes := .Values.controller.extraVolumes | default list -}}
{{- range prepend ($config.profiles | default list) $config.worker -}}
{{- $volumes = concat $volumes (.volumes | default list) -}}
{{- range .initContainers }}{{ if not (include "kube-node-ready.restricted" .) }}{{ $needs = true }}{{ end }}{{ end -}}
{{- end -}}
{{- range $volumes }}{{ if hasKey . "hostPath" }}{{ $needs = true }}{{ end }}{{ end -}}
{{- if $needs }}true{{ end -}}
{{- end -}}
