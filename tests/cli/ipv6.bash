#!/usr/bin/env bash
# A host whose only address is IPv6's loopback: the ranks of a launch, of two launches and of no launcher meet.
# Needs root and ip; else it is skipped (77).
#   ipv6.bash TANDEM
set -euo pipefail
if [ "${2-}" != inside ]; then
  skip() { echo "$1"; exit 77; }
  [ "$(id -u)" = 0 ] && unshare --net true 2>/dev/null || skip "no network namespaces here: root is wanted"
  command -v ip >/dev/null || skip "no ip here: iproute2 is wanted"
  exec unshare --net bash "$0" "$1" inside
fi
tandem=$(realpath "$1")
unset RANK WORLD_SIZE LOCAL_RANK "${!SLURM@}" "${!MASTER_@}"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
ip link set lo up
ip addr del 127.0.0.1/8 dev lo
grep -q . /proc/net/if_inet6 2>/dev/null || { echo "no IPv6 here"; exit 77; }

job=(train data=synthetic head.classes=20 data.size=8 train.batch=12 model=mlp train.steps=2 eval.every=0 threads=1
  report.compare=false comm.init_timeout=30)
# both NAME COMMAND...: runs COMMAND as node 0 and as node 1, which % stands for.
both() {
  local name=$1 node nodes=() statuses=""
  shift
  for node in 0 1; do
    "${@//%/$node}" "${job[@]}" "out=$name" >/dev/null 2>"$name-$node.err" &
    nodes+=($!)
  done
  for node in "${nodes[@]}"; do wait "$node" && statuses+="0 " || statuses+="$? "; done
  [ "$statuses" = "0 0 " ] || { echo "$name: statuses $statuses"; cat "$name"-?.err; exit 1; }
  python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["ranks"] == 2' "$name/result.json"
  echo "$name: two ranks meet"
}

"$tandem" launch -n 2 "${job[@]}" out=one-launch >/dev/null 2>launch.err || { cat launch.err; exit 1; }
echo "one launch: two ranks meet"
both brackets "$tandem" launch -n 1 --nodes 2 --node % --meet '[::1]:29500'
both bare "$tandem" launch -n 1 --nodes 2 --node % --meet ::1:29501
both no-launcher-brackets env RANK=% WORLD_SIZE=2 'MASTER_ADDR=[::1]' MASTER_PORT=29503 "$tandem"
both no-launcher env RANK=% WORLD_SIZE=2 MASTER_ADDR=::1 MASTER_PORT=29504 "$tandem"
both mpirun env OMPI_COMM_WORLD_RANK=% OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=% \
  OMPI_COMM_WORLD_LOCAL_SIZE=2 MASTER_PORT=29505 "$tandem"
