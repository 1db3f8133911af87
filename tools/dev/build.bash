# Configures and builds in build/, with the preset `release`.

# A compile job takes up to 1.5 GiB.
build_jobs() {
  local cores free limit
  cores=$(nproc)
  free=$(awk '/^MemAvailable/ {print $2 * 1024}' /proc/meminfo)
  limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || echo max)
  awk -v cores="$cores" -v free="$free" -v limit="$limit" 'BEGIN {
    if (limit != "max" && limit < free) free = limit
    jobs = int(free / 1.5 / 2 ^ 30)
    print jobs < 1 ? 1 : jobs < cores ? jobs : cores
  }'
}

# CMake runs again by itself when its files change; not when torch moves.
configure() {
  if [ -e build/build.ninja ] && grep -q -F "$(realpath "$torch")/lib/libtorch_cpu.so" build/build.ninja; then
    return
  fi
  phase configure "preset release" cmake --preset release -DTANDEM_TORCH_DIR="${TANDEM_TORCH_DIR:-}" && return
  show_log
  stop 70 "CMake could not configure (its words are above; all of them: $log)"
}

# build TARGET...
build() {
  configure
  local jobs
  jobs=$(build_jobs)
  if [ "$(ninja -C build -n "$@" 2>/dev/null | tail -n 1)" = "ninja: no work to do." ]; then
    phase_line build "$* up to date"
    return
  fi
  phase build "$* with $jobs jobs" ninja -C build -j "$jobs" "$@" && return
  show_log
  stop 70 "the build failed (the compiler's words are above; all of them: $log)"
}
