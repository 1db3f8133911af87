#!/usr/bin/env bash
# Two hosts as two network namespaces with a cable between them: one rank on each.
# Needs root and ip; else it is skipped (77).
#   two_hosts.bash TANDEM
set -euo pipefail
tandem=$1
folder=$(mktemp -d)
hosts=()

clean() {
  [ ${#hosts[@]} = 0 ] || kill "${hosts[@]}" 2>/dev/null || true
  rm -rf "$folder"
}
trap clean EXIT
skip() { echo "$1"; exit 77; }

# A network namespace that lives as long as a process in it: nothing is mounted, and nothing stays behind.
start_host() {
  unshare --net sleep 300 &
  hosts+=($!)
  for _ in {1..100}; do
    [ "$(readlink /proc/self/ns/net)" = "$(readlink "/proc/$!/ns/net")" ] || return 0
    sleep 0.05
  done
  return 1
}
inside() { nsenter --target "$1" --net "${@:2}"; }

[ "$(id -u)" = 0 ] && unshare --net true 2>/dev/null || skip "no network namespaces here: root is wanted"
command -v ip >/dev/null || skip "no ip here: iproute2 is wanted"
start_host && start_host
a=${hosts[0]} b=${hosts[1]}
ip link add "va$a" netns "$a" type veth peer name "vb$a" netns "$b" 2>/dev/null || skip "no veth here"
inside "$a" ip addr add 10.77.0.1/24 dev "va$a"
inside "$b" ip addr add 10.77.0.2/24 dev "vb$a"
for host in "$a" "$b"; do inside "$host" ip link set lo up; done
inside "$a" ip link set "va$a" up
inside "$b" ip link set "vb$a" up

job=(train data.classes=20 train.batch=16 model=mlp train.steps=12 threads=1 report.compare=false comm.init_timeout=60)
on_host() {
  local host=$1 rank=$2
  inside "$host" env RANK="$rank" WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 \
    MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 "$tandem" "${job[@]}" "out=$folder/hosts"
}
on_host "$b" 1 &
on_host "$a" 0
wait $!

"$tandem" "${job[@]}" ranks=2 "out=$folder/threads"
python3 - "$folder" <<'PYTHON'
import json, sys
hosts, threads = (json.load(open(f"{sys.argv[1]}/{name}/result.json")) for name in ("hosts", "threads"))
assert hosts["ranks"] == 2
assert abs(hosts["loss"] - threads["loss"]) < 1e-4, (hosts["loss"], threads["loss"])
assert hosts["wire"]["ranks"][1]["reduce_scatter"] == threads["wire"]["ranks"][1]["reduce_scatter"]
print("two hosts give the loss and the bytes of two threads")
PYTHON
