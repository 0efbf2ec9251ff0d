#!/bin/sh
# Run the controller from this checkout against the cluster of the current kubectl context, as a dry run. Worker pods
# run on unverified nodes, but nothing on any node changes. The log shows the changes that would follow. Stop it with
# Ctrl-C.
#
#   make build-controller
#   examples/run-controller-local.sh                        # with the example configuration
#   CONFIG_FILE=my.yaml examples/run-controller-local.sh    # with yours; --config my.yaml is the same
#   KUBECONFIG=~/.kube/test examples/run-controller-local.sh --log-level debug
#   examples/run-controller-local.sh --dry-run=false        # change nodes
#
# BIN is the folder of the controller; default: bin.
#
# Your user needs the rights that the chart gives the controller. The context's namespace must have the workers'
# service account: kubectl create serviceaccount kube-node-ready-worker. A build that was never released has no image
# of its version, so set worker.image in the configuration to an image that your nodes can pull.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
controller=${BIN:-$here/../bin}/kube-node-ready-controller
kubeconfig=${KUBECONFIG:-$HOME/.kube/config}

fail() {
	echo "run-controller-local.sh: $1" >&2
	exit 1
}
[ -x "$controller" ] || fail "$controller is not there; run make build-controller first"
# The controller reads one file. If KUBECONFIG is a list, kubectl merges it.
[ -f "$kubeconfig" ] || fail "$kubeconfig is not a file; give one with KUBECONFIG, made with: kubectl config view --raw --minify --flatten"

# A later flag takes precedence over these.
exec "$controller" --kubeconfig "$kubeconfig" --dry-run --log-format console --config "${CONFIG_FILE:-$here/controller-config.yaml}" "$@"
