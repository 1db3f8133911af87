# Installs what is missing and nothing else: Debian packages through apt, torch and its kin from PyPI into .venv.
# Status 69 (sysexits' EX_UNAVAILABLE) when something cannot be had.

# The build works without these.
optional_packages=" ccache mold "

# names FILE...: a list's lines without comments.
names() { sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$@"; }

# missing_packages NAME...: those that dpkg does not hold.
missing_packages() {
  local held
  held=" $(dpkg-query -W -f '${Package}=${db:Status-Status} ' "$@" 2>/dev/null || true)"
  local name
  for name in "$@"; do
    case $held in *" $name=installed "*) ;; *) echo "$name" ;; esac
  done
}

# need_packages LIST...: the lists are tools/packages-LIST.txt.
need_packages() {
  local wanted missing required name lists=()
  for name in "$@"; do lists+=("tools/packages-$name.txt"); done
  mapfile -t wanted < <(names "${lists[@]}")
  need_apt "${wanted[@]}" || return 0
  mapfile -t missing < <(missing_packages "${wanted[@]}")
  required=0
  for name in "${missing[@]}"; do
    case $optional_packages in *" $name "*) ;; *) required=1 ;; esac
  done
  if [ $required = 0 ]; then
    phase_line packages "${#wanted[@]} present"
    return
  fi
  install_packages "${missing[@]}"
}

# Fails where there is no apt: then the tools at hand must do.
need_apt() {
  if command -v apt-get >/dev/null && command -v dpkg-query >/dev/null; then return 0; fi
  local tool
  for tool in c++ cmake ninja pkg-config python3; do
    command -v $tool >/dev/null || stop 69 "$tool is missing, and this system has no apt to install it from" \
      "Tandem is tried on Debian 12 and Ubuntu 24.04. Elsewhere, install what these packages hold:" "$*"
  done
  phase_line packages "no apt here: using the tools at hand"
  return 1
}

apt_line() { echo "apt-get install --no-install-recommends $*"; }

install_packages() {
  local root=() known name
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null ||
      stop 69 "$# Debian packages are missing, and neither root nor sudo is here to install them" \
      "Ask an administrator to run:" "$(apt_line "$@")"
    if ! sudo -n true 2>/dev/null && { [ ! -t 0 ] || ! sudo -v; }; then
      stop 69 "$# Debian packages are missing, and sudo does not let this user install them" \
        "Ask an administrator to run:" "$(apt_line "$@")"
    fi
    root=(sudo)
  fi
  local apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300)
  # A third party's list that fails to load does not matter; what is then not to be had is told below.
  phase lists "package lists read" "${apt[@]}" update || phase_line lists "not all could be read: see $log"
  known=" $(LC_ALL=C apt-cache policy "$@" 2>/dev/null |
    awk '/^[^ ].*:$/ {name = $1} /Candidate:/ && $2 != "(none)" {print name}' | tr -d ':' | tr '\n' ' ')"
  local had=() lacking=()
  for name in "$@"; do
    case $known$optional_packages in
      *" $name "*) case $known in *" $name "*) had+=("$name") ;; esac ;;
      *) lacking+=("$name") ;;
    esac
  done
  [ ${#lacking[@]} = 0 ] || stop 69 "no package list of this system holds: ${lacking[*]}" \
    "Without a network: connect, then run this again. On Ubuntu, enable universe: sudo add-apt-repository universe" \
    "Tandem is tried on Debian 12 and Ubuntu 24.04."
  phase packages "${#had[@]} installed" "${apt[@]}" install --no-install-recommends "${had[@]}" && return
  show_log
  stop 69 "apt could not install all ${#had[@]} packages (its words are above)" \
    "When that is mended (network, disk, another apt at work), run this again, or:" "$(apt_line "${had[@]}")"
}

# The system's own Python first: its venv is the one that apt installed.
system_python() { if [ -x /usr/bin/python3 ]; then echo /usr/bin/python3; else command -v python3; fi; }

# unmet LIST: lines of tools/requirements-LIST.txt that .venv lacks. pip writes RECORD last: an install that was cut
# short counts as lacking.
unmet() {
  local line found
  shopt -s nullglob nocaseglob
  for line in $(names "tools/requirements-$1.txt"); do
    local name=${line%%==*} version=${line##*==}
    found=(.venv/lib/python3*/site-packages/"${name//[-.]/_}-$version".dist-info/RECORD)
    [ ${#found[@]} -gt 0 ] || echo "$line"
  done
  shopt -u nullglob nocaseglob
}

# need_python LIST...: .venv holds these requirements.
need_python() {
  local list missing total=0
  # pip comes last into a venv: one that was cut short lacks it.
  if [ ! -x .venv/bin/pip ] || ! .venv/bin/python -c '' 2>/dev/null; then
    rm -rf .venv
    phase venv ".venv made" "$(system_python)" -m venv .venv || { show_log; stop 69 ".venv could not be made" \
      "Debian and Ubuntu keep this in a package: $(apt_line python3-venv)"; }
  fi
  for list in "$@"; do
    mapfile -t missing < <(unmet "$list")
    [ ${#missing[@]} = 0 ] || install_python "$list" "${missing[@]}"
    total=$((total + $(names "tools/requirements-$list.txt" | wc -l)))
  done
  phase_line python "$total Python packages present"
}

install_python() {
  local list=$1
  shift
  phase "python-$list" "$# Python packages installed" .venv/bin/python -m pip --disable-pip-version-check install \
    --no-input --no-compile --no-deps --progress-bar off "$@" || true
  [ "$(unmet "$list" | wc -l)" != 0 ] || return 0
  show_log
  if grep -q -e 'No matching distribution' -e 'Could not find a version' "$log"; then
    local version
    version=$(.venv/bin/python -c 'import platform as p; print("Python", p.python_version(), "on", p.machine())')
    stop 69 "pip finds no $(unmet "$list" | tr '\n' ' ')for $version" \
      "Without a network: connect, then run this again. Otherwise take a Python that has these wheels (3.11, 3.12)," \
      "or name a torch of your own: TANDEM_TORCH_DIR=.../site-packages/torch ./dev ..."
  fi
  stop 69 "pip could not install $(unmet "$list" | tr '\n' ' ')(its words are above)" \
    "When that is mended (network, disk), run this again."
}

# need_torch: libtorch to link. Sets `torch`, the folder that holds include/ and lib/.
need_torch() {
  if [ -n "${TANDEM_TORCH_DIR:-}" ]; then
    torch=$TANDEM_TORCH_DIR
    [ -e "$torch/lib/libtorch_cpu.so" ] || stop 69 "TANDEM_TORCH_DIR is $torch, which holds no lib/libtorch_cpu.so" \
      "Name the folder of a torch wheel (it holds include/ and lib/), or unset it and let ./dev install torch."
    phase_line torch "$torch"
    return
  fi
  need_python "$@"
  torch=$(echo .venv/lib/python3*/site-packages/torch)
  ! ldd "$torch/lib/libtorch_cpu.so" | grep 'not found' >&2 ||
    stop 69 "$torch/lib/libtorch_cpu.so lacks the libraries above" "Remove .venv and run this again."
}
