#!/bin/sh
# Run what a DaemonSet's pod runs from this checkout on this machine, as a dry run: the checks run once, the
# log says what would be written on the node, and nothing is changed. With a kubeconfig the node is read from its
# cluster; without one, what needs none is checked.
#
#   make build
#   examples/run-daemonset-local.sh
#   CONFIG_FILE=my.yaml NODE_NAME=worker-1 examples/run-daemonset-local.sh
#
# CONFIG_FILE is a configuration file, the controller's; default: the built-in settings.
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
# What is given on the command line wins.
exec "$worker" daemonset --dry-run --log-format=console --log-level=debug "$@"
