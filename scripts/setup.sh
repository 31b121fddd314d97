# Sourced by the other scripts: finds Python 3.12 or newer and uv, and makes the environment in .venv.
# Sets ROOT, PYTHON, UV. Installs uv from PyPI into .tools when there is none on PATH.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"

say() { printf '\033[2m→ %s\033[0m\n' "$*" >&2; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

is_new_enough() { "$1" -c 'import sys, venv; raise SystemExit(sys.version_info < (3, 12))' >/dev/null 2>&1; }

find_python() {
  local candidate
  for candidate in python3.12 python3.13 python3.14 python3 python; do
    candidate=$(command -v "$candidate" 2>/dev/null) || continue
    is_new_enough "$candidate" && { PYTHON=$candidate; return; }
  done
  for candidate in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python; do
    [ -x "$candidate" ] && is_new_enough "$candidate" && { PYTHON=$candidate; return; }
  done
  if command -v uv >/dev/null 2>&1; then
    candidate=$(uv python find '>=3.12' 2>/dev/null) && is_new_enough "$candidate" && { PYTHON=$candidate; return; }
  fi
  fail "no Python 3.12 or newer found on PATH, among pyenv's versions or uv's. Install one, for example: pyenv install 3.12"
}

find_uv() {
  if command -v uv >/dev/null 2>&1 && uv --version >/dev/null 2>&1; then UV=$(command -v uv); return; fi
  UV=$ROOT/.tools/bin/uv
  [ -x "$UV" ] && "$UV" --version >/dev/null 2>&1 && return
  say "installing uv from PyPI into .tools"
  "$PYTHON" -m venv "$ROOT/.tools" && "$ROOT/.tools/bin/python" -m pip install --quiet uv \
    || fail "uv could not be installed from PyPI; see the lines above"
}

find_python
find_uv
export PATH="$(dirname "$UV"):$PATH" UV_PYTHON_DOWNLOADS=never
unset PYTHONDONTWRITEBYTECODE VIRTUAL_ENV
