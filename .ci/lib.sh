# Sourced by the other scripts: steps that print one line with their seconds, and stamps that skip what is done.

set -eu -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
LOGS=build/logs
STAMPS=.venv/.stamps
mkdir -p "$LOGS"

fail() {
  printf 'pilothouse: %s\n' "$*" >&2
  exit 1
}

# step NAME COMMAND...: runs quietly, its name on a terminal meanwhile; on failure shows the end of its log and stops.
step() {
  local name=$1 log started status=0
  shift
  log=$LOGS/$(printf '%s' "$name" | tr -c 'a-z0-9\n' '-').log
  started=$(date +%s%N)
  [ ! -t 1 ] || printf '  %-46s %6s\r' "$name" '...'
  "$@" >"$log" 2>&1 </dev/null || status=$?
  printf '  %-46s %6s s\n' "$name" "$(seconds_since "$started")"
  if [ "$status" -ne 0 ]; then
    tail -n 25 "$log" >&2
    fail "\"$name\" failed (exit $status). The whole log: $log"
  fi
}

seconds_since() {
  local tenths=$((($(date +%s%N) - $1) / 100000000))
  printf '%d.%d' $((tenths / 10)) $((tenths % 10))
}

# is_done STAMP CONTENT: was this very content finished before?
is_done() {
  [ -f "$STAMPS/$1" ] && [ "$(cat "$STAMPS/$1")" = "$2" ]
}

mark_done() {
  mkdir -p "$STAMPS"
  printf '%s' "$2" >"$STAMPS/$1"
}

is_root() {
  [ "$(id -u)" -eq 0 ]
}

# apt_install PACKAGE...: only what is named, nothing recommended, and no service is started by it.
apt_install() {
  local policy=/usr/sbin/policy-rc.d ours='' status=0
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    ours=yes
  fi
  export DEBIAN_FRONTEND=noninteractive
  {
    apt-get -q -o Acquire::Retries=3 update &&
      apt-get -q -y -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 install --no-install-recommends "$@"
  } || status=$?
  if [ -n "$ours" ]; then rm -f "$policy"; fi
  return "$status"
}
