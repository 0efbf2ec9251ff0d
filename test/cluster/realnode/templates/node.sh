#!/bin/bash
# The first process of a node: makes the node's own view of the machine, then reaps orphans
# (containerd's shims leave their parent) for as long as the node lives.
set -eu
resolver=$(readlink -f /etc/resolv.conf)
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/lock /run/containerd
# containerd resolves registries with the machine's settings, whose servers are not on this network.
if [[ $resolver == /run/* ]]; then
	mkdir -p "$(dirname "$resolver")"
	cp "{{.Dir}}/resolv.conf" "$resolver"
else
	mount --bind "{{.Dir}}/resolv.conf" "$resolver"
fi
mount --bind "{{.Dir}}/kubelet" /var/lib/kubelet
mount --bind "{{.Dir}}/cni-cache" /var/lib/cni
mount --bind "{{.Dir}}/log" /var/log
mount --bind "{{.Dir}}/boot_id" /proc/sys/kernel/random/boot_id
hostname "{{.Name}}"
touch "{{.Dir}}/alive"
while :; do
	sleep 3600 &
	wait $!
done
