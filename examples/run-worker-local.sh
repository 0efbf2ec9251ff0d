#!/bin/sh
# Run the worker from this checkout on this machine, without a cluster: what needs none is
# checked, the rest is listed as skipped. Nothing is changed.
#
#   make build
#   examples/run-worker-local.sh                                # with the example configuration
#   examples/run-worker-local.sh --config my.yaml               # with yours
#   examples/run-worker-local.sh --only registry,dns-registry.k8s.io
#
# The exit code is the worker's: 0 passed, 1 a required check failed, 2 configuration error.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
worker=$here/../bin/kube-node-ready-worker

if [ ! -x "$worker" ]; then
	echo "run-worker-local.sh: $worker is not there; run make build first" >&2
	exit 1
fi
# A later --config wins over this one.
exec "$worker" verify --dry-run --output text --config "$here/worker-config.yaml" "$@"
