#!/usr/bin/env bash
# Two hosts as two network namespaces with a cable between them: one rank on each.
# Needs root and ip; else it is skipped (77).
#   two_hosts.bash TANDEM
set -euo pipefail
tandem=$1
id=$$
a=tandem_a_$id b=tandem_b_$id
folder=$(mktemp -d)

clean() {
  ip netns del "$a" 2>/dev/null || true
  ip netns del "$b" 2>/dev/null || true
  rm -rf "$folder"
}
trap clean EXIT

if ! { ip netns add "$a" && ip netns add "$b"; } 2>/dev/null; then
  echo "no network namespaces here: root and iproute2 are wanted"
  exit 77
fi
ip link add "va$id" type veth peer name "vb$id" 2>/dev/null || { echo "no veth here"; exit 77; }
ip link set "va$id" netns "$a"
ip link set "vb$id" netns "$b"
ip -n "$a" addr add 10.77.0.1/24 dev "va$id"
ip -n "$b" addr add 10.77.0.2/24 dev "vb$id"
for name in "$a" "$b"; do ip -n "$name" link set lo up; done
ip -n "$a" link set "va$id" up
ip -n "$b" link set "vb$id" up

job=(train data.classes=20 train.batch=16 model=mlp train.steps=12 threads=1 report.compare=false comm.init_timeout=60)
on_host() {
  local name=$1 rank=$2
  ip netns exec "$name" env RANK="$rank" WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 \
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
