#!/usr/bin/env bash
# Packs the images of the end-to-end cluster's own programs into .cache/images. CoreDNS must be
# built (test/tools/build.sh coredns).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
cache=${CACHE_DIR:-$root/.cache}
export GOCACHE=${GOCACHE:-$cache/go-build} GOTOOLCHAIN=${GOTOOLCHAIN:-local} GOWORK=off
images=$cache/images
mkdir -p "$images"

(cd "$root" && CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$images/pause" ./test/cluster/realnode/pause)
(cd "$here/imagepack" && CGO_ENABLED=0 go build -trimpath -buildvcs=false -o "$images/imagepack" .)
"$images/imagepack" -out "$images/pause.tar" -name kube-node-ready.test/pause:1 "$images/pause"
# Port 53 needs root, or a capability that a file in an image would have to carry.
"$images/imagepack" -out "$images/coredns.tar" -name kube-node-ready.test/coredns:1 -user 0:0 "$cache/tools/bin/coredns"
