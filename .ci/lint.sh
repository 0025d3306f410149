#!/bin/bash
# lint.sh: every check runs, so that one look shows all that is wrong.
. "$(dirname "$0")/lib.sh"

status=0
PILOTHOUSE_HOME=$(mktemp -d)
export PILOTHOUSE_HOME
trap 'rm -rf "$PILOTHOUSE_HOME"' EXIT

check() {
  local name=$1 started log code=0
  shift
  log=$LOGS/lint-$(printf '%s' "$name" | tr -c 'a-z0-9\n' '-').log
  started=$(date +%s%N)
  "$@" >"$log" 2>&1 </dev/null || code=$?
  if [ "$code" -eq 0 ]; then
    printf '  %-30s ok %10s s\n' "$name" "$(seconds_since "$started")"
  else
    printf '  %-30s FAILED %6s s\n' "$name" "$(seconds_since "$started")"
    cat "$log"
    status=1
  fi
}

shell_syntax() {
  local script
  for script in .ci/run .ci/*.sh; do bash -n "$script"; done
}

# Settings as production would have them; what `check --deploy` still says is then about the code.
deploy_check() {
  DEBUG=0 SECRET_KEY="only for this check $(seq -s ' ' 1 40)" COOKIE_SECURE=1 SECURE_SSL_REDIRECT=1 \
    SECURE_HSTS_SECONDS=3600 ALLOWED_HOSTS=console.example \
    .venv/bin/python manage.py check --deploy --fail-level WARNING
}

printf '\n== lint\n'
check "ruff check" .venv/bin/ruff check .
check "ruff format" .venv/bin/ruff format --check .
check "types" .venv/bin/mypy config console inference rollouts chaos tests/services tests/conftest.py tests/factories.py
check "imports" .venv/bin/lint-imports
check "migrations" .venv/bin/python manage.py makemigrations --check --dry-run
check "django, as deployed" deploy_check
check "templates" .venv/bin/djlint --quiet --lint templates
check "shell syntax" shell_syntax
exit "$status"
