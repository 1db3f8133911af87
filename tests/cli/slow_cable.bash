#!/usr/bin/env bash
# Two hosts with a slow cable between them, two ranks each: parallel=auto lets only a pipeline cross the cable.
# Needs root, ip and tc; else it is skipped (77).
#   slow_cable.bash TANDEM
set -euo pipefail
tandem=$1
tools=$(cd "$(dirname "$0")/../../tools" && pwd)
skip() { echo "$1"; exit 77; }
[ "$(id -u)" = 0 ] && unshare --net true 2>/dev/null || skip "no network namespaces here: root is wanted"
command -v ip >/dev/null && command -v tc >/dev/null || skip "no ip or tc here: iproute2 is wanted"
unshare --net ip link add end0 type veth peer name end1 2>/dev/null || skip "no veth here"
unshare --net sh -c "ip link add end0 type veth peer name end1 &&
  tc qdisc add dev end0 root tbf rate 50mbit burst 256kb latency 200ms" 2>/dev/null || skip "no paced link here"
chosen=$("$tools/paced_plans" "$tandem" --mbit 50 --rounds 0)
echo "$chosen"
[[ $chosen == *" mesh.pipeline=2 "* ]] || { echo "more than a pipeline would cross the cable"; exit 1; }
