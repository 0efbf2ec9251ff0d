#!/bin/sh
# Adds the reporter as a sidecar to the installed Calico, and creates the rule.
#
#   examples/cni-readiness/apply-calico.sh [--context CONTEXT | any option of kubectl]
#
# NAMESPACE (default kube-system) and DAEMONSET (default calico-node) name Calico's DaemonSet.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
namespace=${NAMESPACE:-kube-system}
daemonset=${DAEMONSET:-calico-node}

found=$(kubectl "$@" --namespace "$namespace" get daemonset "$daemonset" --ignore-not-found --output name)
if [ -z "$found" ]; then
	echo "apply-calico.sh: there is no DaemonSet $daemonset in namespace $namespace: install Calico first, or set NAMESPACE and DAEMONSET" >&2
	exit 1
fi
owner=$(kubectl "$@" --namespace "$namespace" get daemonset "$daemonset" --output 'jsonpath={.metadata.ownerReferences[0].kind}')
if [ -n "$owner" ]; then
	echo "apply-calico.sh: an operator owns the DaemonSet ($owner) and would undo a patch: apply cni-reporter-ds.yaml in place of the sidecar" >&2
	exit 1
fi
# Create the rights first, because the sidecar needs them from its start.
kubectl "$@" apply --filename "$here/calico-rbac-node-status-patch-role.yaml"
account=$(kubectl "$@" --namespace "$namespace" get daemonset "$daemonset" --output 'jsonpath={.spec.template.spec.serviceAccountName}')
if [ "$namespace/$account" != kube-system/calico-node ]; then
	echo "apply-calico.sh: Calico runs as ServiceAccount $namespace/${account:-default}; bind ClusterRole node-status-patch-role to it" >&2
fi
kubectl "$@" --namespace "$namespace" patch daemonset "$daemonset" --type strategic --patch-file "$here/cni-patcher-sidecar.yaml"
kubectl "$@" apply --filename "$here/network-readiness-rule.yaml"
