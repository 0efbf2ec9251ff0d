{{/*
What an account of ours may change of a Node, as validations: the marks that the configuration names. Called with (dict "root" $ "who"
"kube-node-ready's controller").
*/}}
{{- define "kube-node-ready.nodeMarks" -}}
{{- $node := (include "kube-node-ready.config" .root | fromYaml).nodeManagement | default dict }}
{{- $label := ($node.verifiedLabel | default dict).key | default "node-ready/verified" }}
{{- $rules := and (eq .root.Values.deploymentMode "controller") (include "kube-node-ready.servesRules" .root) }}
{{- $annotations := list "node-ready/record" }}
{{- with $node.completedAnnotation }}{{ $annotations = append $annotations . }}{{ end }}
{{- if $rules }}{{ $annotations = append $annotations "node-ready/rules" }}{{ end }}
{{- $annotation := printf "k in %s" ($annotations | toJson) }}
{{- $taints := list }}
{{- range include "kube-node-ready.gatingTolerations" .root | fromYamlArray }}
{{- $taints = append $taints (printf "t.key == %s && t.effect == %s" (squote .key) (squote .effect)) }}
{{- end }}
{{- if $rules }}
{{- $annotation = printf "(%s || k.startsWith('readiness.k8s.io/bootstrap-completed-'))" $annotation }}
{{- $annotations = append $annotations "readiness.k8s.io/bootstrap-completed-*" }}
{{- $taints = append $taints "t.key.startsWith('readiness.k8s.io/')" }}
{{- end -}}
- expression: >-
    object == null || oldObject == null ||
    object.metadata.?labels.orValue({}).all(k, k == {{ squote $label }} || oldObject.metadata.?labels[?k] == optional.of(object.metadata.labels[k])) &&
    oldObject.metadata.?labels.orValue({}).all(k, k == {{ squote $label }} || k in object.metadata.?labels.orValue({}))
  reason: Forbidden
  message: {{ .who }} may change no label but {{ $label }}
- expression: >-
    object == null || oldObject == null ||
    object.metadata.?annotations.orValue({}).all(k, {{ $annotation }} || oldObject.metadata.?annotations[?k] == optional.of(object.metadata.annotations[k])) &&
    oldObject.metadata.?annotations.orValue({}).all(k, {{ $annotation }} || k in object.metadata.?annotations.orValue({}))
  reason: Forbidden
  message: {{ .who }} may change no annotation but {{ join ", " $annotations }}
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
  message: {{ .who }} may change nothing of a node's spec but its own taints
- expression: >-
    object == null || oldObject == null ||
    {{- range $field := list "capacity" "allocatable" "addresses" "daemonEndpoints" "nodeInfo" "images" "volumesInUse" "volumesAttached" }}
    object.status.?{{ $field }} == oldObject.status.?{{ $field }} &&
    {{- end }}
    object.status.?conditions.orValue([]).filter(c, c.type != 'node-ready/Verified') ==
    oldObject.status.?conditions.orValue([]).filter(c, c.type != 'node-ready/Verified')
  reason: Forbidden
  message: {{ .who }} may change no condition but node-ready/Verified, and nothing else of a node's status
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
