#!/usr/bin/env bash
# new_user.bash TANDEM: runs new_user.py with the Python that has torch.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
sources=$(cd "$here/../.." && pwd)
python=$sources/.venv/bin/python
[ -x "$python" ] || python=python3
exec "$python" -B "$here/new_user.py" "$1" "$sources"
