#!/bin/sh
# Adds the reporter as a sidecar to the installed Falco, and creates the rule.
#
#   examples/security-agent-readiness/apply-falco.sh [--context CONTEXT | any option of kubectl]
#
# NAMESPACE (default falco) and DAEMONSET (default falco) name Falco's DaemonSet.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
namespace=${NAMESPACE:-falco}
daemonset=${DAEMONSET:-falco}

found=$(kubectl "$@" --namespace "$namespace" get daemonset "$daemonset" --ignore-not-found --output name)
if [ -z "$found" ]; then
	echo "apply-falco.sh: there is no DaemonSet $daemonset in namespace $namespace: install Falco first, or set NAMESPACE and DAEMONSET" >&2
	exit 1
fi
owner=$(kubectl "$@" --namespace "$namespace" get daemonset "$daemonset" --output 'jsonpath={.metadata.ownerReferences[0].kind}')
if [ -n "$owner" ]; then
	echo "apply-falco.sh: an operator owns the DaemonSet ($owner) and would undo a patch: apply security-agent-reporter-ds.yaml in place of the sidecar" >&2
	exit 1
fi
# Create the rights first, because the sidecar needs them from its start.
kubectl "$@" apply --filename "$here/falco-rbac-node-status-rbac.yaml"
account=$(kubectl "$@" --namespace "$namespace" get daemonset "$daemonset" --output 'jsonpath={.spec.template.spec.serviceAccountName}')
if [ "$namespace/$account" != falco/falco ]; then
	echo "apply-falco.sh: Falco runs as ServiceAccount $namespace/${account:-default}; bind ClusterRole node-status-patch-role to it" >&2
fi
kubectl "$@" --namespace "$namespace" patch daemonset "$daemonset" --type strategic --patch-file "$here/security-agent-patcher-sidecar.yaml"
kubectl "$@" apply --filename "$here/security-agent-readiness-rule.yaml"
