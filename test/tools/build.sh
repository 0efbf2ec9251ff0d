#!/usr/bin/env bash
# Compiles pinned third-party programs from their Go modules into .cache/tools/bin.
#
#	test/tools/build.sh etcd kubernetes coredns ...
#
# Each argument is a folder beside this file with a go.mod of its own: these projects'
# dependency graphs agree neither with each other nor with the product's. kubernetes is the
# control plane and kubectl; kubernetes-node is the rest of that folder, which only real nodes
# need. A tool is built again only when its pin (go.mod, go.sum), how it is built, or the Go
# release changes.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${CACHE_DIR:-$(cd "$here/../.." && pwd)/.cache}
bin=$cache/tools/bin
export GOCACHE=${GOCACHE:-$cache/go-build}
export CGO_ENABLED=0 GOFLAGS=-buildvcs=false GOTOOLCHAIN=${GOTOOLCHAIN:-local} GOWORK=off
mkdir -p "$bin" "$cache/tools/stamp" "$cache/tools/log"

# What a first build took on two cores, so that a person knows whether to wait.
expected() {
	case $1 in
	kubernetes) echo "about 7 min" ;;
	kubernetes-node) echo "about 3 min" ;;
	karpenter) echo "about 6 min" ;;
	golangci-lint) echo "about 4 min" ;;
	coredns | helm | prometheus) echo "about 2 min" ;;
	*) echo "about 1 min" ;;
	esac
}

# The folder of a tool's pin.
folder() { echo "$here/${1%-node}"; }

# What is compiled: all tools of the pin, or of Kubernetes a part of them.
packages() {
	case $1 in
	kubernetes) printf 'k8s.io/kubernetes/cmd/%s ' kube-apiserver kube-controller-manager kube-scheduler kubectl ;;
	kubernetes-node) printf 'k8s.io/kubernetes/cmd/%s ' kubelet kube-proxy ;;
	*) echo tool ;;
	esac
}

# The version stamp that kubectl and the API server report; without it they say v0.0.0.
ldflags() {
	local flags="-s -w" version
	if [[ $1 == kubernetes* ]]; then
		version=$(cd "$(folder "$1")" && go list -m -f '{{.Version}}' k8s.io/kubernetes)
		local major=${version#v} minor=${version#v*.}
		for pkg in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
			flags+=" -X $pkg.gitVersion=$version -X $pkg.gitMajor=${major%%.*} -X $pkg.gitMinor=${minor%%.*}"
		done
	fi
	echo "$flags"
}

# Prometheus without service discovery: tests scrape fixed addresses, and the clouds' SDKs are
# most of what it would compile.
tags() { [[ $1 != prometheus ]] || echo remove_all_sd; }

# A folder's fingerprint: what must change for its binaries to be rebuilt.
pin() {
	cat "$(folder "$1")/go.mod" "$(folder "$1")/go.sum" <(packages "$1"; tags "$1"; ldflags "$1"; go version) | sha256sum | cut -d' ' -f1
}

build() {
	local name=$1 stamp=$cache/tools/stamp/$1 log=$cache/tools/log/$1.log want started=$SECONDS
	want=$(pin "$name")
	if [[ -f $stamp && $(<"$stamp") == "$want" ]]; then
		return
	fi
	: >"$log"
	echo "tools: building $name from source, $(expected "$name") on two cores the first time"
	local out=$bin/.$name
	rm -rf "$out" && mkdir "$out"
	local what
	read -ra what <<<"$(packages "$name")"
	(cd "$(folder "$name")" && go build -v -trimpath -tags "$(tags "$name")" -ldflags "$(ldflags "$name")" -o "$out/" "${what[@]}") >"$log" 2>&1 &
	local pid=$!
	trap 'kill '"$pid"' 2>/dev/null || true' EXIT
	local last=$SECONDS
	while kill -0 "$pid" 2>/dev/null; do
		sleep 1
		if ((SECONDS - last >= 15)); then
			last=$SECONDS
			echo "tools: $name: $((SECONDS - started)) s, $(grep -vc '^go: ' "$log" || true) packages compiled"
		fi
	done
	if ! wait "$pid"; then
		trap - EXIT
		echo "tools: $name did not build; the end of $log:" >&2
		tail -n 20 "$log" >&2
		return 1
	fi
	trap - EXIT
	# Two of the programs are not named after their package's folder.
	[[ $name != etcd ]] || mv "$out/server" "$out/etcd"
	[[ $name != karpenter ]] || mv "$out/kwok" "$out/karpenter-kwok"
	mv -f "$out"/* "$bin/" && rmdir "$out"
	echo "$want" >"$stamp"
	echo "tools: $name built in $((SECONDS - started)) s"
}

[[ $# -gt 0 ]] || { echo "usage: build.sh NAME...; NAME is one of: $(cd "$here" && echo */ kubernetes-node | tr -d /)" >&2; exit 2; }
for name in "$@"; do
	[[ -f $(folder "$name")/go.mod ]] || { echo "build.sh: no pin for \"$name\" in test/tools" >&2; exit 2; }
	build "$name"
done
