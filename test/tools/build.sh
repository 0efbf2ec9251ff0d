#!/usr/bin/env bash
# Puts pinned third-party programs into .cache/tools/bin, as links: to what was compiled from their Go
# modules or, for Kubernetes, etcd and CoreDNS, to ready-made ones of exactly the pinned version. Those
# are looked for in the folder that KUBEBUILDER_ASSETS names, and then in PATH. kube-apiserver, kubectl
# and etcd are then downloaded with controller-runtime's setup-envtest, which verifies checksums: of
# the pinned minor version, from the index that ENVTEST_INDEX names (default: setup-envtest's own;
# "off" downloads nothing). Where the index does not answer within five seconds they are compiled.
#
# What is compiled is kept for all clones of a user, in a folder named after its pin, so that clones
# with different pins do not disturb each other: $CACHE_DIR, else $XDG_CACHE_HOME/kube-node-ready, else
# ~/.cache/kube-node-ready. A folder that no clone asked for in 30 days goes at the next build.
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
root=$(cd "$here/../.." && pwd)
store=${CACHE_DIR:-${XDG_CACHE_HOME:-${HOME:?set HOME, XDG_CACHE_HOME or CACHE_DIR}/.cache}/kube-node-ready}
bin=$root/.cache/tools/bin
export CGO_ENABLED=0 GOFLAGS=-buildvcs=false GOTOOLCHAIN=${GOTOOLCHAIN:-local} GOWORK=off
mkdir -p "$store/tools" "$bin"
store=$(cd "$store" && pwd -P)
envtest=$store/envtest

# What a first build took on two cores, so that a person knows whether to wait.
expected() {
	case $1 in
	kubernetes) echo "about 7 min" ;;
	kubernetes-node) echo "about 3 min" ;;
	karpenter | cluster-api) echo "about 6 min" ;;
	golangci-lint | goreleaser | syft) echo "about 4 min" ;;
	coredns | helm | prometheus) echo "about 2 min" ;;
	*) echo "about 1 min" ;;
	esac
}

# The folder of a tool's pin.
folder() { echo "$here/${1%-node}"; }

# The programs of a tool that may be had ready-made, by their names; none of the others.
programs() {
	case $1 in
	kubernetes) echo kube-apiserver kube-controller-manager kube-scheduler kubectl ;;
	kubernetes-node) echo kubelet kube-proxy ;;
	etcd | coredns) echo "$1" ;;
	esac
}

# What is compiled: the given programs of Kubernetes, else all tools of the pin.
packages() {
	local name=$1
	shift
	case $name in
	kubernetes*) printf 'k8s.io/kubernetes/cmd/%s ' "$@" ;;
	*) echo tool ;;
	esac
}

# The version of the module that a tool is made of, without its v.
version() {
	local module
	case $1 in
	kubernetes*) module=k8s.io/kubernetes ;;
	etcd) module=go.etcd.io/etcd/server/v3 ;;
	coredns) module=github.com/coredns/coredns ;;
	esac
	(cd "$(folder "$1")" && go list -m -f '{{.Version}}' "$module") | sed 's/^v//'
}

# The version that a program reports of itself.
reported() {
	local flag=--version
	case $(basename "$1") in
	kubectl) flag="version --client" ;;
	coredns) flag=-version ;;
	esac
	# shellcheck disable=SC2086 # two words for kubectl
	"$1" $flag 2>/dev/null | grep -Eo '[0-9]+\.[0-9]+\.[0-9]+[-+.0-9A-Za-z]*' | head -n 1
}

# ready_made PROGRAM VERSION FOLDER prints the path of a program that need not be compiled: in the given folder of
# ready-made ones, where an earlier run found one, in FOLDER because it was compiled before, among those downloaded, or in
# PATH.
ready_made() {
	local candidate have
	for candidate in "${KUBEBUILDER_ASSETS:+$KUBEBUILDER_ASSETS/$1}" "$(readlink "$bin/$1" || true)" "$3/$1" "$(downloaded)/$1" "$(type -P "$1" || true)"; do
		[[ -f $candidate && -x $candidate ]] || continue
		[[ $candidate != "$3/$1" ]] || { echo "$candidate" && return; }
		[[ $(readlink -f "$candidate") != "$store"/tools/* ]] || continue # compiled for another pin
		have=$(reported "$candidate" || true)
		if [[ $have == "$2" || $(dirname "$candidate") == "$(downloaded)" ]]; then
			(cd "$(dirname "$candidate")" && echo "$PWD/$1")
			return
		fi
		echo "tools: $candidate is version ${have:-unknown} and the pin is $2: it is not used" >&2
	done
	return 1
}

# The folder of the programs that were downloaded: the latest of the pinned minor version of Kubernetes.
downloaded() { [[ ! -d $envtest ]] || compgen -G "$envtest/k8s/$(minor).*" | sort -V | tail -n 1; }

# The pinned minor version of Kubernetes.
minor() { version kubernetes | cut -d. -f1,2; }

# within SECONDS COMMAND... ends the command when its time is over. Not every system has timeout(1).
within() {
	local limit=$1 pid guard status=0
	shift
	"$@" &
	pid=$!
	(sleep "$limit" && kill "$pid") >/dev/null 2>&1 9>&- &
	guard=$!
	wait "$pid" || status=$?
	kill "$guard" 2>/dev/null || true
	return "$status"
}

# Downloads kube-apiserver, kubectl and etcd once, if that is possible. It is tried once in a run.
download() {
	[[ -z $asked && ${ENVTEST_INDEX:-} != off && -z $(downloaded) ]] || return 0
	asked=yes
	provide setup-envtest
	local flags=(--bin-dir "$envtest" --print path) log=$store/envtest.log wanted
	[[ -z ${ENVTEST_INDEX:-} ]] || flags+=(--index "$ENVTEST_INDEX")
	wanted=$(minor).x!
	if within 5 "$bin/setup-envtest" "${flags[@]}" list "$wanted" >"$log" 2>&1 &&
		within 300 "$bin/setup-envtest" "${flags[@]}" use "$wanted" >"$log" 2>&1; then
		echo "tools: kube-apiserver, kubectl and etcd as published for Kubernetes $(basename "$(downloaded)"), downloaded by setup-envtest"
	else
		rm -rf "$envtest"
		echo "tools: kube-apiserver, kubectl and etcd are compiled, for they cannot be downloaded: $(tail -n 1 "$log" | grep . || echo no answer within five seconds)"
	fi
}
asked=

# find_missing TOOL VERSION FOLDER links the programs of a tool that are ready-made or in the folder, and sets missing to
# the others: by their names where the tool may be had ready-made, else to the tool.
find_missing() {
	local program path
	missing=()
	if [[ -z $2 ]]; then
		[[ -d $3 ]] || missing=("$1")
		return
	fi
	for program in $(programs "$1"); do
		if path=$(ready_made "$program" "$2" "$3"); then
			[[ $path == "$3/$program" || $(readlink "$bin/$program" || true) == "$path" ]] ||
				echo "tools: $program $(reported "$path"): using $path"
			point "$program" "$path"
		else
			missing+=("$program")
		fi
	done
}

# point PROGRAM PATH makes the program of this clone a link, unless it is that already.
point() {
	[[ $(readlink "$bin/$1" || true) == "$2" ]] || ln -sfn "$2" "$bin/$1"
}

# The version stamp that kubectl and the API server report; without it they say v0.0.0. Helm's is the version of Kubernetes that
# "helm template" assumes: without it v1.20, which the chart refuses.
ldflags() {
	local flags="-s -w" version
	if [[ $1 == kubernetes* ]]; then
		version=$(version "$1")
		local minor=${version#*.}
		for pkg in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
			flags+=" -X $pkg.gitVersion=v$version -X $pkg.gitMajor=${version%%.*} -X $pkg.gitMinor=${minor%%.*}"
		done
	fi
	if [[ $1 == helm ]]; then
		local minor
		minor=$(cd "$(folder helm)" && go list -m -f '{{.Version}}' k8s.io/client-go | cut -d. -f2)
		flags+=" -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=$minor"
	fi
	echo "$flags"
}

# Prometheus without service discovery: tests scrape fixed addresses, and the clouds' SDKs are
# most of what it would compile. node-problem-detector has its custom plugins alone, for the same reason.
tags() {
	case $1 in
	prometheus) echo remove_all_sd ;;
	node-problem-detector) echo disable_stackdriver_exporter,disable_system_log_monitor,disable_system_stats_monitor ;;
	esac
}

# A folder's fingerprint: what must change for its binaries to be rebuilt.
pin() {
	cat "$(folder "$1")/go.mod" "$(folder "$1")/go.sum" <(find "$(folder "$1")" -name '*.go' -exec cat {} +) <(packages "$1" $(programs "$1"); tags "$1"; ldflags "$1"; go version) | sha256sum | cut -c 1-16
}

# provide TOOL links the programs of a tool, and compiles those that are nowhere.
provide() {
	local name=$1 pinned='' folder program missing=()
	folder=$store/tools/$name/$(pin "$name")
	[[ -z $(programs "$name") ]] || pinned=$(version "$name")
	find_missing "$name" "$pinned" "$folder"
	if [[ ${#missing[@]} -gt 0 ]]; then
		lock "$name"
		find_missing "$name" "$pinned" "$folder" # another build may have compiled it meanwhile
	fi
	if [[ " ${missing[*]-} " =~ \ (kube-apiserver|kubectl|etcd)\  ]]; then
		download
		find_missing "$name" "$pinned" "$folder"
	fi
	if [[ ${#missing[@]} -gt 0 ]]; then
		compile "$name" "$folder" ${pinned:+"${missing[@]}"}
		find_missing "$name" "$pinned" "$folder"
	fi
	unlock "$name"
	[[ -d $folder ]] || return 0
	touch "$folder"
	[[ -z $pinned ]] || return 0
	for program in "$folder"/*; do
		point "$(basename "$program")" "$program"
	done
}

# One build at a time, where the system has flock(1): each takes the whole machine. A tool that another one needs meanwhile
# is built under the lock of that one.
lock() {
	[[ -z ${locked:-} ]] || return 0
	locked=$1
	exec 9>"$store/lock"
	! type -P flock >/dev/null || flock -n 9 || { echo "tools: waiting for another build" && flock 9; }
}

# unlock TOOL ends the lock that was taken for the tool.
unlock() {
	[[ ${locked:-} == "$1" ]] || return 0
	locked=
	exec 9>&-
}

# compile TOOL FOLDER [PROGRAM...] compiles a tool, or these programs of it, into the folder of its pin.
compile() {
	local name=$1 folder=$2 started=$SECONDS
	shift 2
	find "$store/tools" -mindepth 2 -maxdepth 2 -mtime +30 -exec rm -rf {} +
	mkdir -p "$store/tools/$name"
	local out=$store/tools/$name/.building log=$store/tools/$name.log
	rm -rf "$out" && mkdir "$out"
	: >"$log"
	echo "tools: building $name from source, $(expected "$name") on two cores the first time"
	local what
	read -ra what <<<"$(packages "$name" "$@")"
	(cd "$(folder "$name")" && exec go build -v -trimpath -tags "$(tags "$name")" -ldflags "$(ldflags "$name")" -o "$out/" "${what[@]}") >"$log" 2>&1 9>&- &
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
		exit 1
	fi
	trap - EXIT
	# Some programs are not named after their package's folder.
	case $name in
	etcd) mv "$out/server" "$out/etcd" ;;
	karpenter) mv "$out/kwok" "$out/karpenter-kwok" && mv "$out/repair" "$out/karpenter-repair" ;;
	helm) mv "$out/render" "$out/helm-render" ;;
	cluster-api) mv "$out/core" "$out/cluster-api" ;;
	node-problem-detector) mv "$out/nodeproblemdetector" "$out/node-problem-detector" ;;
	esac
	if [[ $# -gt 0 ]]; then
		mkdir -p "$folder"
		mv -f "$out"/* "$folder/" && rmdir "$out"
	else
		mv "$out" "$folder"
	fi
	echo "tools: $name built in $((SECONDS - started)) s"
}

[[ $# -gt 0 ]] || { echo "usage: build.sh NAME...; NAME is one of: $(cd "$here" && echo */ kubernetes-node | tr -d /)" >&2; exit 2; }
for name in "$@"; do
	[[ -f $(folder "$name")/go.mod ]] || { echo "build.sh: no pin for \"$name\" in test/tools" >&2; exit 2; }
	provide "$name"
done
