#!/usr/bin/env bash
# What the system refuses (threads, processes, descriptors, address space) ends a job within seconds, with 79, or 74 for
# a file, and one line that names the limit: never with 70, an abort or a wait. Ranks as threads and as processes.
# Needs root, for a user of its own whose processes are limited; else it is skipped (77).
#   limits.bash TANDEM          a few limits
#   limits.bash TANDEM all      a hundred, with a line for each
set -uo pipefail
tandem=$(realpath "$1")
all=${2-}
[ "$(id -u)" = 0 ] && command -v setpriv >/dev/null || { echo "root and setpriv are wanted"; exit 77; }
unset RANK WORLD_SIZE LOCAL_RANK "${!SLURM@}" "${!MASTER_@}"
# A user of its own, who reaches the program also in root's home, which others may not enter.
as_user=(setpriv --reuid 54321 --regid 54321 --clear-groups --inh-caps=+dac_read_search --ambient-caps=+dac_read_search)
"${as_user[@]}" "$tandem" --version >/dev/null 2>&1 || { echo "another user cannot run the program"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
chmod 777 "$folder"
cd "$folder" || exit 1

job=(data=synthetic head.classes=20 data.size=8 embedding=8 model=mlp train.steps=2 train.batch=12 report.compare=false
  eval.every=0 comm.timeout=8 comm.init_timeout=8)
status=0
# limited FLAG VALUE WORDS...: a job under `ulimit FLAG VALUE`.
limited() {
  local flag=$1 value=$2 code line right=yes
  shift 2
  rm -rf run
  (
    ulimit "$flag" "$value"
    exec timeout -s KILL 40 "${as_user[@]}" "$tandem" "$@" "${job[@]}" out=run
  ) >out 2>err
  code=$?
  line=$(grep -aE 'error|terminate|libgomp' err | head -1)
  case $code in
    0 | 127) ;;  # 127: the system cannot load the program
    79) grep -aqE '^error: .*(ulimit|pids.max)' err || right=no ;;
    74) grep -aqE '^(error|warning): .*Too many open files' err || right=no ;;
    *) right=no ;;
  esac
  [ $right = yes ] || status=1
  [ $right = yes ] || echo -n "WRONG "
  [ $right = yes ] && [ -z "$all" ] || echo "ulimit $flag $value, ${*:1:3}: $code $line"
}

threads=(train ranks=3 threads=2)
processes=(launch -n 3 train threads=1)
if [ -n "$all" ]; then
  files=({8..24} 28 32 36 40 48 64) users=({1..14} 16 20 24 32)
  spaces=(300 400 500 550 600 650 700 750 800 850 900 1000 1100 1200 1400 1600 2000 3000)
else
  files=(13 20 32) users=(2 6 12) spaces=(700 1000)
fi
for value in "${files[@]}"; do
  limited -n "$value" "${threads[@]}"
  limited -n "$value" "${processes[@]}"
done
for value in "${users[@]}"; do
  limited -u "$value" "${threads[@]}"
  limited -u "$value" "${processes[@]}"
done
for value in "${spaces[@]}"; do
  limited -v $((value * 1024)) "${threads[@]}"
  limited -v $((value * 1024)) "${processes[@]}"
done
exit $status
