#!/usr/bin/env bash
# The peers of `make bench`, each on its own: one that cannot be installed does not keep the others away.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
stamp=.venv/.stamp-bench
[ "$(cat "$stamp" 2>/dev/null)" = "$(cksum <requirements-bench.txt)" ] && exit 0
missing=0
while read -r requirement; do
  echo "setup: installing $requirement"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input --retries 2 --timeout 20 \
    -r requirements.txt "$requirement" </dev/null >>var/setup.log 2>&1 && continue
  echo "setup: $requirement could not be installed; the table says so (details: var/setup.log)" >&2
  missing=1
done < <(sed 's/#.*//; s/[[:space:]]*$//; /^$/d' requirements-bench.txt)
[ $missing = 1 ] || cksum <requirements-bench.txt >"$stamp"
exit 0
