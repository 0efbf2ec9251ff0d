#!/usr/bin/env bash
# Installs what a cluster of real nodes needs from Debian or Ubuntu, if it is missing. No service
# is started: only the programs are used.
set -euo pipefail

# By program and not by package: Docker's packages bring a runc of their own, and removing
# that for Debian's would break Docker.
missing=()
while read -r program package; do
	command -v "$program" >/dev/null || missing+=("$package")
done <<-END
	/usr/sbin/ip iproute2
	/usr/sbin/iptables iptables
	/usr/sbin/conntrack conntrack
	runc runc
	/usr/lib/cni/bridge containernetworking-plugins
END
((${#missing[@]})) || exit 0
[[ $(id -u) == 0 ]] || { echo "packages.sh: to install ${missing[*]}, run it as root" >&2; exit 1; }

echo "packages: installing ${missing[*]}"
policy=/usr/sbin/policy-rc.d
made=
if [[ ! -e $policy ]]; then
	# Debian's way to say that a package's services are not to be started when it is installed.
	printf '#!/bin/sh\nexit 101\n' >$policy
	chmod +x $policy
	made=1
fi
trap '[[ -z $made ]] || rm -f '"$policy" EXIT
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
