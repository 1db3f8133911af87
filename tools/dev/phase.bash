# What ./dev tells: one line a phase on stderr, the command's own words in build/log/NAME.log.

say() { printf '%s\n' "$*" >&2; }

# stop STATUS TEXT REMEDY...: one `error:` line, the remedy indented below it.
stop() {
  local status=$1 line
  say "error: $2"
  shift 2
  for line in "$@"; do say "    $line"; done
  exit "$status"
}

# A phase's name, what it did and, when it took any time, how long.
phase_times=""
phase_line() {
  local name=$1 text=$2 tenths=${3:-}
  if [ -z "$tenths" ]; then
    printf '%-10s %s\n' "$name" "$text" >&2
    return
  fi
  local took
  printf -v took '%d.%d s' $((tenths / 10)) $((tenths % 10))
  printf '%-10s %-58s %10s\n' "$name" "$text" "$took" >&2
  phase_times+="${phase_times:+ · }$name $took"
}

tenths_now() { local now=${EPOCHREALTIME/[.,]/}; printf '%s' $((now / 100000)); }

# While a phase runs: its log's last line on a terminal, a line a minute elsewhere. Ends with ./dev itself.
watch_phase() {
  local name=$1 log=$2 parent=$3 columns seconds=0 last
  columns=$(stty size 2>/dev/null </dev/tty | cut -d' ' -f2 || true)
  case $columns in '' | 0) columns=80 ;; esac
  # A sleep outlives its parent by a moment, and must not hold anybody's pipe open.
  while sleep 1 >/dev/null 2>&1 && kill -0 "$parent" 2>/dev/null; do
    seconds=$((seconds + 1))
    last=$(tail -c 400 "$log" 2>/dev/null | tr -d '\r' | tail -n 1 || true)
    if [ -t 2 ]; then
      last="$name  $seconds s  $last"
      printf '\r\033[K%s' "${last:0:columns-1}" >&2
    elif [ $((seconds % 60)) = 0 ]; then
      say "$name  $seconds s  ${last:0:100}"
    fi
  done
}

watcher=""
end_watch() {
  [ -n "$watcher" ] || return 0
  kill "$watcher" 2>/dev/null || true
  wait "$watcher" 2>/dev/null || true
  watcher=""
  [ ! -t 2 ] || printf '\r\033[K' >&2
}
trap end_watch EXIT

# phase NAME TEXT COMMAND...: runs the command, its output in the log; the status is the command's.
phase() {
  local name=$1 text=$2 start status=0
  shift 2
  mkdir -p build/log
  log=build/log/$name.log
  start=$(tenths_now)
  : >"$log"
  watch_phase "$name" "$log" $$ 9>&- &
  watcher=$!
  "$@" </dev/null >"$log" 2>&1 9>&- || status=$?  # 9: the lock, which only ./dev holds
  end_watch
  if [ "$status" = 0 ]; then phase_line "$name" "$text" $(($(tenths_now) - start)); fi
  return "$status"
}

# What the last phase's log says of a failure: ninja's failed steps, else the last lines.
show_log() {
  if grep -q '^FAILED: ' "$log"; then
    say "--- from $log"
    sed -n '/^FAILED: /,$p' "$log" | grep -v '^\[[0-9]*/[0-9]*\] ' | head -n 60 >&2 || true
  else
    say "--- the last lines of $log"
    tail -n 30 "$log" >&2
  fi
  say "---"
}
