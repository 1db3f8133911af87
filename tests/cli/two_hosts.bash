#!/usr/bin/env bash
# Two hosts as two network namespaces with a cable between them, with two ranks each: every strategy trains as four
# threads do, sends as many bytes, and replicas of one process are refused.
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

job=(data=synthetic head.classes=20 data.size=8 train.batch=14 model=mlp train.steps=6 train.precision=float64
  threads=1 comm.init_timeout=60 local_sgd.every=3 diloco.every=3)
port=29500
refused=" dp pipeline "                               # by processes, and by each model so far
declare -A more=([tensor]="model=none embedding=64")  # the model that can stand there
# on_hosts STRATEGY: trains with a launch on each host; their statuses are in $statuses.
on_hosts() {
  local node host nodes=()
  port=$((port + 1))
  for node in 0 1; do
    host=$([ $node = 0 ] && echo "$a" || echo "$b")
    inside "$host" "$tandem" launch -n 2 --nodes 2 --node $node --meet 10.77.0.1:$port \
      train "${job[@]}" parallel="$1" ${more[$1]:-} out="$folder/$1-hosts" >/dev/null 2>"$folder/$1-$node.err" &
    nodes+=($!)
  done
  statuses=""
  for node in "${nodes[@]}"; do
    wait "$node" && statuses+="0 " || statuses+="$? "
  done
}
compare() {
  python3 - "$folder" "$1" <<'PYTHON'
import json, sys
hosts, threads = (json.load(open(f"{sys.argv[1]}/{sys.argv[2]}-{name}/result.json")) for name in ("hosts", "threads"))
assert hosts["ranks"] == 4
for ours, theirs in zip(hosts["losses"], threads["losses"], strict=True):
    assert abs(ours - theirs) < 1e-10, (hosts["losses"], threads["losses"])
if sys.argv[2] != "auto":  # whose plan is the links' to choose
    assert hosts["wire"] == threads["wire"], (hosts["wire"], threads["wire"])
PYTHON
}

names=$("$tandem" train parallel=none 2>&1 | sed -n 's/.*wanted //; s/,\| or/ /gp' || true)
[ "$(wc -w <<<"$names")" -ge 8 ] || { echo "no strategies in '$names'"; exit 1; }
for name in $names; do
  on_hosts "$name"
  if [[ $refused == *" $name "* ]]; then
    [ "$statuses" = "78 78 " ] || { echo "$name: statuses $statuses"; exit 1; }
    grep -h error: "$folder/$name-"*.err
    continue
  fi
  [ "$statuses" = "0 0 " ] || { echo "$name: statuses $statuses"; cat "$folder/$name-"*.err; exit 1; }
  "$tandem" train "${job[@]}" parallel="$name" ${more[$name]:-} ranks=4 out="$folder/$name-threads" >/dev/null \
    2>"$folder/$name-threads.err"
  compare "$name"
  echo "$name: two hosts give the losses and the bytes of four threads"
done
