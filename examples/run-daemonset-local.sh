#!/bin/sh
# Run the program of a DaemonSet's pod from this checkout on this machine, as a dry run. The checks run once, the log
# shows the changes that would follow, and nothing is changed. With a kubeconfig, the node is read from its cluster.
# Without one, only the checks that need no API server run.
#
#   make build
#   examples/run-daemonset-local.sh
#   CONFIG_FILE=my.yaml NODE_NAME=worker-1 examples/run-daemonset-local.sh
#
# CONFIG_FILE is a configuration file of the controller; default: the built-in settings.
# NODE_NAME is the node in the cluster; default: this machine's name.
# BIN is the folder of the worker; default: bin.
#
# The exit code is the worker's: 0 passed, 1 a required check failed, 2 configuration error.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
worker=${BIN:-$here/../bin}/kube-node-ready-worker

if [ ! -x "$worker" ]; then
	echo "run-daemonset-local.sh: $worker is not there; run make build first" >&2
	exit 1
fi
if [ -n "${CONFIG_FILE:-}" ]; then
	set -- --config "$CONFIG_FILE" "$@"
fi
# Flags of the command line take precedence.
exec "$worker" daemonset --dry-run --log-format=console --log-level=debug "$@"
