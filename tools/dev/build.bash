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

# part_of TARGET...: `program` when the program, its folders and the examples are all that is wanted, else `tests`.
part_of() {
  local target
  for target in "$@"; do
    case $target in tandem | tandem_* | example_*) ;; *) echo tests; return ;; esac
  done
  echo program
}

# configure program|tests: a folder that was configured with its tests keeps them. CMake runs again by itself when its
# files change; not when torch moves, nor when a package is installed that it looked for in vain.
configure() {
  local switches=("-DTANDEM_TORCH_DIR=${TANDEM_TORCH_DIR:-}")
  if [ "$1" = tests ] && ! grep -q -s '^TANDEM_BUILD_TESTS:[A-Z]*=ON$' build/CMakeCache.txt; then
    switches+=(-DTANDEM_BUILD_TESTS=ON)
  elif grep -q -s -F "$(realpath "$torch")/lib/libtorch_cpu.so" build/build.ninja &&
    [ ! "$torch/.." -nt build/build.ninja ]; then
    return
  fi
  phase configure "preset release" cmake --preset release "${switches[@]}" && return
  show_log
  stop 70 "CMake could not configure (its words are above; all of them: $log)"
}

# build TARGET...
build() {
  configure "$(part_of "$@")"
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
