#!/bin/bash
# test.sh [PYTEST ARGUMENT...]: the whole suite on SQLite, then what touches the database again on PostgreSQL.
. "$(dirname "$0")/lib.sh"

closing=()
part=$([ "$#" -eq 0 ] || echo yes)
status=0

suite() {
  local name=$1 code=0
  shift
  printf '\n== tests on %s\n' "$name"
  .venv/bin/python -m pytest --durations=8 --durations-min=5 "$@" </dev/null 2>&1 | tee "$LOGS/pytest-$name.log" || code=$?
  # 5: nothing was selected, which a part of the suite without a database may well be on PostgreSQL.
  [ "$code" -eq 0 ] || [ "$code,$name,$part" = 5,PostgreSQL,yes ] || status=1
  closing+=("on $name:" "$(tail -n 1 "$LOGS/pytest-$name.log")")
}

suite SQLite "$@"
if .venv/bin/python -c 'import sys; from tests.services.postgres import find_binaries; sys.exit(find_binaries() is None)'
then
  PILOTHOUSE_TEST_DATABASE=postgresql suite PostgreSQL -m 'database and not browser and not e2e' "$@"
else
  closing+=("on PostgreSQL: DID NOT RUN, it is not on this machine")
  [ "${CI:-}" != true ] || status=1
fi

printf '\n== tests took %d s\n' "$SECONDS"
printf '%s\n' "${closing[@]}"
exit "$status"
