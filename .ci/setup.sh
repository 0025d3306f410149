#!/bin/bash
# setup.sh EXTRA...: the virtual environment with these extras of pyproject.toml, at the versions of constraints.txt.
. "$(dirname "$0")/lib.sh"

python=${PYTHON:-python3}
command -v "$python" >/dev/null || fail "$python is not on the PATH. Pilothouse needs Python 3.11 or newer."
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  fail "$("$python" --version) is too old: Pilothouse needs Python 3.11 or newer (make PYTHON=python3.11 ...)."

make_venv() {
  "$python" -m venv .venv
}

pip_install() {
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input --retries 5 -c constraints.txt "$@"
}

# The demo takes a model from the wheel magika, which asks for the CPU runtime: beside the GPU runtime it comes alone.
install_extras() {
  case ",$1," in
  *,gpu,*)
    pip_install -e ".[${1/,demo/}]"
    pip_install --no-deps magika
    ;;
  *) pip_install -e ".[$1]" ;;
  esac
}

# Both wheels own the module onnxruntime: removing one would break the other, so both go first.
drop_runtimes() {
  .venv/bin/python -m pip uninstall --quiet --yes onnxruntime onnxruntime-gpu
  rm -f "$STAMPS/extra-cpu" "$STAMPS/extra-gpu"
}

if [ ! -x .venv/bin/python ] || ! .venv/bin/python -c 'import pip' 2>/dev/null; then
  if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
    is_root || fail "$python cannot make virtual environments. As root: apt-get install python3-venv"
    command -v apt-get >/dev/null || fail "$python cannot make virtual environments: install its venv module."
    step "python3-venv from Debian" apt_install python3-venv
  fi
  rm -rf .venv
  step "virtual environment" make_venv
fi

wanted=$(cat pyproject.toml constraints.txt | sha256sum | cut -d ' ' -f 1)
missing=''
for extra in "$@"; do
  is_done "extra-$extra" "$wanted" || missing=yes
done
[ -n "$missing" ] || exit 0

case " $* " in
*" gpu "*) [ ! -f "$STAMPS/extra-cpu" ] || step "remove the CPU runtime" drop_runtimes ;;
*" cpu "*) [ ! -f "$STAMPS/extra-gpu" ] || step "remove the GPU runtime" drop_runtimes ;;
esac
step "packages ($*)" install_extras "$(IFS=,; echo "$*")"
for extra in "$@"; do
  mark_done "extra-$extra" "$wanted"
done
