{{/* "true" where rules taint nodes at their creation, wherever admission does. */}}
{{- define "kube-node-ready.taintsForRules" -}}
{{- if eq .Values.deploymentMode "controller" }}{{ include "kube-node-ready.servesRules" . }}{{ end -}}
{{- end -}}

{{/* Whether the policy is installed that adds the tolerations of rules to the controller's new pods: true, or empty. */}}
{{- define "kube-node-ready.addsTolerations" -}}
{{- if and .Values.enabled (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy") }}{{ include "kube-node-ready.taintsForRules" . }}{{ end -}}
{{- end -}}

{{/*
Which rules taint a node at its creation, as matchConditions of a policy whose params are NodeReadinessRules: what
rule.OnCreation says.
*/}}
{{- define "kube-node-ready.ruleConditions" -}}
{{- $gating := list }}
{{- range include "kube-node-ready.gatingTolerations" . | fromYamlArray }}
{{- $gating = append $gating (printf "%s:%s" .key .effect) }}
{{- end -}}
# A rule without our finalizer owns no taint yet: its deletion would leave that behind.
- name: in-force
  expression: >-
    !has(params.metadata.deletionTimestamp) && !params.spec.?dryRun.orValue(false) &&
    'readiness.node.x-k8s.io/cleanup-taints' in params.metadata.?finalizers.orValue([])
- name: selects-something
  expression: >-
    size(params.spec.nodeSelector.?matchLabels.orValue({})) +
    size(params.spec.nodeSelector.?matchExpressions.orValue([])) > 0
- name: selects-the-node
  expression: >-
    params.spec.nodeSelector.?matchLabels.orValue({}).all(k,
      object.metadata.?labels[?k] == optional.of(params.spec.nodeSelector.matchLabels[k])) &&
    params.spec.nodeSelector.?matchExpressions.orValue([]).all(e,
      e.operator == 'In' ? e.?values.orValue([]).exists(v, object.metadata.?labels[?e.key] == optional.of(v)) :
      e.operator == 'NotIn' ? !e.?values.orValue([]).exists(v, object.metadata.?labels[?e.key] == optional.of(v)) :
      e.operator == 'Exists' ? object.metadata.?labels[?e.key].hasValue() :
      e.operator == 'DoesNotExist' && !object.metadata.?labels[?e.key].hasValue())
# What another definition may admit, and the controller refuses.
- name: selects-by-labels
  expression: >-
    params.spec.nodeSelector.?matchLabels.orValue({}).all(k, !format.qualifiedName().validate(k).hasValue() &&
      !format.labelValue().validate(params.spec.nodeSelector.matchLabels[k]).hasValue()) &&
    params.spec.nodeSelector.?matchExpressions.orValue([]).all(e, !format.qualifiedName().validate(e.key).hasValue() &&
      (e.operator in ['In', 'NotIn']) == (size(e.?values.orValue([])) > 0) &&
      e.?values.orValue([]).all(v, !format.labelValue().validate(v).hasValue()))
- name: has-a-taint-of-rules
  expression: >-
    (params.spec.taint.key.startsWith('readiness.k8s.io/') ||
      params.spec.taint.key.startsWith('startup-taint.cluster-autoscaler.kubernetes.io/')) &&
    !format.qualifiedName().validate(params.spec.taint.key).hasValue() &&
    !format.labelValue().validate(params.spec.taint.?value.orValue('')).hasValue() &&
    params.spec.taint.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'] &&
    !(params.spec.taint.key + ':' + params.spec.taint.effect in {{ $gating | toJson }})
- name: asks-for-what-is-served
  expression: >-
    size(params.spec.conditions) > 0 && params.spec.?conditionPolicy.orValue('') in ['', 'allOf', 'anyOf'] &&
    (params.spec.enforcementMode == 'continuous' || params.spec.enforcementMode == 'bootstrap-only' &&
      params.spec.?conditionPolicy.orValue('') != 'anyOf' &&
      params.spec.conditions.all(c, c.?defaultStatus.orValue('') == ''))
- name: is-not-met
  {{- $there := "object.?status.?conditions.orValue([]).filter(o, o.type == c.type && o.?status.orValue('') != '')" }}
  {{- $missing := "[c.?defaultStatus.orValue('') == '' ? 'Unknown' : c.defaultStatus]" }}
  {{- $met := printf "(%s.map(o, o.status) + %s)[0] == c.requiredStatus" $there $missing }}
  expression: >-
    params.spec.?conditionPolicy.orValue('') == 'anyOf'
    ? !params.spec.conditions.exists(c, {{ $met }})
    : !params.spec.conditions.all(c, {{ $met }})
- name: does-not-taint-it-yet
  expression: >-
    !object.spec.?taints.orValue([]).exists(t, t.key == params.spec.taint.key && t.effect == params.spec.taint.effect)
{{- end -}}
