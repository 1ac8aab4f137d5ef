#!/usr/bin/env bash
# Every static check, all of them even when one fails; exit code 1 when any did.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# Not the developer's own installation: only the code is looked at.
export DATA_DIR=$scratch SECRET_KEY=only-for-checks DATABASE_URL='' REDIS_URL='' PATH="$PWD/.venv/bin:$PATH"
failed=()

check() {
  local name=$1; shift
  if "$@" >"$scratch/output" 2>&1; then
    printf '  ok      %s\n' "$name"
  else
    failed+=("$name")
    printf '  FAILED  %s: %s\n' "$name" "$*"
    sed 's/^/          /' "$scratch/output"
  fi
}

check "lint" .venv/bin/ruff check .
check "format" .venv/bin/ruff format --check .
check "types" .venv/bin/python -m mypy
check "import directions" .venv/bin/lint-imports
check "migrations up to date" .venv/bin/python manage.py makemigrations --check --dry-run
check "docs/redis-keys.md up to date" .venv/bin/python manage.py keys --fresh
check "docs/errors.md up to date" .venv/bin/python manage.py errors_doc --fresh
check "docs/retention.md up to date" .venv/bin/python manage.py prune --fresh
check "deployment settings" .venv/bin/python manage.py check

if [ ${#failed[@]} -gt 0 ]; then
  printf 'check: %s failed: %s\n' "${#failed[@]}" "$(IFS=,; echo "${failed[*]}")" >&2
  exit 1
fi
echo "check: all passed"
