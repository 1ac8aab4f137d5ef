#!/usr/bin/env bash
# Puts in place what a make target needs, and nothing when it is there already (then it takes milliseconds).
#
#   setup.sh run    .venv/ with requirements.txt
#   setup.sh dev    .venv/ with requirements-dev.txt
#   setup.sh test   as dev, and the servers and the browser that the tests start
#
# Missing operating system packages are installed on Debian and Ubuntu where we are root or sudo asks nothing;
# elsewhere they are named and we stop. Output of pip and apt goes to var/setup.log. Exit code 1 with one sentence
# for everything that a person has to do.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

level=${1:-run}
log=var/setup.log
python=.venv/bin/python
building=.venv/.building          # there from the first change to .venv until the last: a half-built one has it
needs_megabytes=600

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

case $level in
  run) requirements=requirements.txt ;;
  dev | test) requirements=requirements-dev.txt ;;
  *) fail "unknown level '$level'; use run, dev or test" ;;
esac

# --- is it done already? ---------------------------------------------------------------------------------------------

# A stamp holds what the packages were installed from, and where (a virtual environment cannot be moved).
recipe() { { echo "$PWD"; cat requirements.txt; [ "$1" = run ] || cat requirements-dev.txt; } | cksum; }
stamped() { [ "$(cat ".venv/.stamp-$1" 2>/dev/null)" = "$(recipe "$1")" ] && [ -x "$python" ] && [ ! -e "$building" ]; }
packages_done() { if [ "$requirements" = requirements.txt ]; then stamped run || stamped dev; else stamped dev; fi; }

have() { command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ]; }
have_cjk_font() { compgen -G '/usr/share/fonts/*/noto/NotoSansCJK*' >/dev/null || fc-list :lang=zh 2>/dev/null | grep -q .; }

missing_for_tests() {
  have mariadbd && have mariadb-install-db || echo mariadb-server-core
  have my_print_defaults || echo mariadb-client-core
  have redis-server || echo redis-server
  have chromium || echo chromium
  have_cjk_font || echo fonts-noto-cjk
  have msgfmt || echo gettext
}

if packages_done && { [ "$level" != test ] || [ -z "$(missing_for_tests)" ]; }; then
  exit 0
fi

# --- one at a time ---------------------------------------------------------------------------------------------------

mkdir -p var 2>/dev/null && : >>"$log" 2>/dev/null || fail "this folder is not writable for $(id -un): $PWD/var"
if command -v flock >/dev/null; then
  exec 9>var/setup.lock
  if ! flock -n 9; then
    say "another setup is at work here; waiting for it"
    flock 9
  fi
fi
trap 'echo; fail "interrupted; the next call begins again where that is needed"' INT TERM HUP
printf '\n==== %s  setup %s\n' "$(date -u +%FT%TZ)" "$level" >>"$log"

# --- operating system packages ---------------------------------------------------------------------------------------

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo -n "$@"
  else return 77
  fi
}

no_space() { tail -n 60 "$log" | grep -q 'No space left on device'; }

# Installs Debian packages, or names them and stops. No service of theirs is started: policy-rc.d says so for the while.
install_packages() {
  local why=$1; shift
  local command="apt-get update && apt-get install --no-install-recommends $*"
  command -v apt-get >/dev/null || fail "$why needs what Debian calls: $*. Install these with your package manager and call make again."
  as_root true || fail "$why needs these packages: $*. As root: $command"
  say "installing $*"
  local policy=/usr/sbin/policy-rc.d ours=
  if [ ! -e $policy ]; then
    as_root sh -c "printf '#!/bin/sh\nexit 101\n' >$policy && chmod +x $policy" && ours=1
  fi
  local apt=(as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
  local failed=
  { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "$@"; } >>"$log" 2>&1 9>&- </dev/null || failed=1
  [ -z "$ours" ] || as_root rm -f $policy
  [ -n "$failed" ] || return 0
  if no_space; then fail "the disk is full; make room for $* and call make again."; fi
  if tail -n 60 "$log" | grep -qE 'Temporary failure resolving|Could not connect|Failed to fetch|Could not resolve|Unable to connect'; then
    fail "the servers of the operating system's packages cannot be reached; check the network, then as root: $command (see $log)"
  fi
  fail "installing $* did not work; the reason is at the end of $log. By hand, as root: $command"
}

# --- the virtual environment -----------------------------------------------------------------------------------------

# The first Python that is new enough: PYTHON when given, the system's own, then whatever PATH has; one that can make
# virtual environments comes before one that lacks a package for it.
find_python() {
  local candidate path able
  for able in 'import venv, ensurepip' ''; do
    for candidate in ${PYTHON:+"$PYTHON"} /usr/bin/python3 python3 python3.13 python3.12 python3.11; do
      path=$(command -v "$candidate" 2>/dev/null) || continue
      if "$path" -c "import sys; sys.exit(sys.version_info < (3, 11))
$able" >/dev/null 2>&1; then
        echo "$path"; return 0
      fi
    done
  done
  return 1
}

is_system_python() { [ "$(readlink -f "$1")" = "$(readlink -f /usr/bin/python3 2>/dev/null)" ]; }

missing_for_building() {
  have gcc || have cc || echo gcc
  [ -e /usr/include/stdio.h ] || have xcrun || echo libc6-dev
  { have pkg-config || have pkgconf; } || echo pkg-config
  pkg-config --exists libmariadb 2>/dev/null || pkg-config --exists mysqlclient 2>/dev/null || echo libmariadb-dev
  "$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' 2>/dev/null \
    || if is_system_python "$python"; then echo python3-dev
       else "$python" -c 'import sys; print("python%d.%d-dev" % sys.version_info[:2])'
       fi
}

make_venv() {
  local base=$1
  rm -rf .venv || fail "the old .venv cannot be removed; delete $PWD/.venv by hand and call make again."
  if ! "$base" -c 'import venv, ensurepip' >/dev/null 2>&1; then
    local package=python3-venv
    is_system_python "$base" || package=$("$base" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    install_packages "a virtual environment" "$package"
  fi
  mkdir .venv && : >"$building" && "$base" -m venv .venv >>"$log" 2>&1 9>&- && rm -f "$building" && return 0
  no_space && fail "the disk is full; make room (about $needs_megabytes MB) and call make again."
  fail "the virtual environment could not be made with $base; the reason is at the end of $log."
}

pip_problem() {
  local end; end=$(tail -n 200 "$log")
  if no_space; then
    fail "the disk is full; make room (about $needs_megabytes MB) and call make again."
  elif grep -qE 'NewConnectionError|name resolution|Connection refused|Network is unreachable|ConnectTimeout|ReadTimeout|ProxyError|Max retries|Could not fetch URL|RemoteDisconnected|Connection (broken|aborted|reset)' <<<"$end"; then
    fail "the Python package index cannot be reached; check the network (or PIP_INDEX_URL and HTTPS_PROXY) and call make again. Details: $log"
  elif grep -qE 'ould not build wheels for|ailed building wheel|metadata-generation-failed' <<<"$end"; then
    fail "a package did not compile; Debian needs gcc pkg-config python3-dev libmariadb-dev. The compiler's words are in $log"
  fi
  fail "the packages could not be installed: $(grep -E '^ERROR' <<<"$end" | tail -n 1 | cut -c1-200) (details: $log)"
}

install_python_packages() {
  local base free
  base=$(find_python) || fail "Python 3.11 or newer is needed; $(python3 --version 2>/dev/null || echo 'no Python') is what there is. Install python3.11 with its venv module, or name one: PYTHON=/path/to/python3.11 make setup"
  free=$(df -Pk . | awk 'NR == 2 {print int($4 / 1024)}')
  if [ "${free:-0}" -lt $needs_megabytes ]; then
    fail "the packages need about $needs_megabytes MB and $PWD has $free MB left; make room and call make again."
  fi
  if [ -e "$building" ]; then
    say "the last setup did not end; building .venv anew"
    make_venv "$base"
  elif ! "$python" -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
    say "making .venv with $("$base" --version 2>&1) ($base)"
    make_venv "$base"
  elif ! grep -qsF "$PWD/.venv/" .venv/bin/pip; then
    say "this folder was moved; building .venv anew"
    make_venv "$base"
  fi
  if ! "$python" -c 'import MySQLdb' >/dev/null 2>&1; then
    local needed; needed=$(missing_for_building | sort -u)
    # shellcheck disable=SC2086 - a list of package names
    [ -z "$needed" ] || install_packages "mysqlclient (it is compiled here)" $needed
  fi
  say "installing $requirements (about a minute the first time)"
  : >"$building"
  local status=0
  "$python" -m pip install --disable-pip-version-check --no-input --retries 2 --timeout 20 -r "$requirements" >>"$log" 2>&1 9>&- || status=$?
  if [ $status != 0 ]; then
    # pip unpacks last: what stopped it before that has left .venv whole, and the next call goes on from here
    [ $status -gt 128 ] || no_space || rm -f "$building"
    pip_problem
  fi
  rm -f .venv/.stamp-*
  recipe run >.venv/.stamp-run
  [ "$requirements" = requirements.txt ] || recipe dev >.venv/.stamp-dev
  rm -f "$building"
}

packages_done || install_python_packages
if [ "$level" = test ]; then
  needed=$(missing_for_tests)
  # shellcheck disable=SC2086 - a list of package names
  [ -z "$needed" ] || install_packages "make test" $needed
fi
say "ready"
