#!/bin/sh
# Run the worker from this checkout on this machine, without a cluster. Checks that need no API server run; the others
# are skipped. Nothing is changed.
#
#   make build-worker
#   examples/run-worker-local.sh                                # with the example configuration
#   CONFIG_FILE=my.yaml examples/run-worker-local.sh            # with yours; --config my.yaml is the same
#   NODE_NAME=node-1 examples/run-worker-local.sh               # the report names this node
#   BIN=/usr/local/bin examples/run-worker-local.sh             # a worker that is not in bin
#   examples/run-worker-local.sh --only registry,dns-registry.k8s.io
#
# The exit code is the worker's: 0 passed, 1 a required check failed, 2 configuration error.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
worker=${BIN:-$here/../bin}/kube-node-ready-worker

if [ ! -x "$worker" ]; then
	echo "run-worker-local.sh: $worker is not there; run make build-worker first" >&2
	exit 1
fi
# A later --config takes precedence. The worker reads NODE_NAME.
exec "$worker" verify --dry-run --output text --config "${CONFIG_FILE:-$here/worker-config.yaml}" "$@"
