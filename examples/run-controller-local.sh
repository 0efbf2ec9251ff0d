#!/bin/sh
# Run the controller from this checkout against the cluster of the current kubectl context,
# in dry-run: worker pods run on unverified nodes, and nothing on any node changes. The log
# says what would have been done. Stop it with Ctrl-C.
#
#   make build-controller
#   examples/run-controller-local.sh                        # with the example configuration
#   CONFIG_FILE=my.yaml examples/run-controller-local.sh    # with yours; --config my.yaml is the same
#   KUBECONFIG=~/.kube/test examples/run-controller-local.sh --log-level debug
#   examples/run-controller-local.sh --dry-run=false        # change nodes
#
# BIN is the folder of the controller; default: bin.
#
# Your user must be allowed what the chart allows the controller, and the context's namespace
# must have the workers' service account: kubectl create serviceaccount kube-node-ready-worker.
# A build that was never released has no image of its own version: name one that your nodes can
# pull with worker.image in the configuration.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
controller=${BIN:-$here/../bin}/kube-node-ready-controller
kubeconfig=${KUBECONFIG:-$HOME/.kube/config}

fail() {
	echo "run-controller-local.sh: $1" >&2
	exit 1
}
[ -x "$controller" ] || fail "$controller is not there; run make build-controller first"
# The controller takes one file. Of a list, kubectl makes one.
[ -f "$kubeconfig" ] || fail "$kubeconfig is not a file; give one with KUBECONFIG, made with: kubectl config view --raw --minify --flatten"

# A later flag wins over these.
exec "$controller" --kubeconfig "$kubeconfig" --dry-run --log-format console --config "${CONFIG_FILE:-$here/controller-config.yaml}" "$@"
