#!/usr/bin/env bash
# Packs the images of the end-to-end cluster's own programs, and builds the delay line, the CSI driver and the
# devices, into .cache/realnode. CoreDNS must be built (test/tools/build.sh coredns).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
cache=$root/.cache
export GOTOOLCHAIN=${GOTOOLCHAIN:-local} GOWORK=off
built=$cache/realnode
mkdir -p "$built"

(cd "$root" && CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$built/pause" ./test/cluster/realnode/pause)
(cd "$root/test/image" && go build -trimpath -buildvcs=false -o "$built/image" .)
for program in netdelay csidriver devices; do
	(cd "$here/$program" && CGO_ENABLED=0 go build -trimpath -buildvcs=false -o "$built/$program" .)
done
"$built/image" --file "$here/images/pause.Dockerfile" --context "$built" --reference kube-node-ready.test/pause:1 --out "$built/pause.tar"
"$built/image" --file "$here/images/coredns.Dockerfile" --context "$(dirname "$(readlink -f "$cache/tools/bin/coredns")")" --reference kube-node-ready.test/coredns:1 --out "$built/coredns.tar"
