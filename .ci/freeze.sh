#!/bin/bash
# freeze.sh: write constraints.txt from the virtual environment, after packages were added or moved on purpose.
. "$(dirname "$0")/lib.sh"

# Never in the environment of a developer at the same time as the others, so kept by hand.
readonly EXTRA='onnxruntime-gpu==1.32.0'
{
  echo '# Exact versions of everything a Pilothouse environment may hold; written by .ci/freeze.sh.'
  { .venv/bin/python -m pip freeze --exclude-editable && echo "$EXTRA"; } | grep -v ' @ ' | LC_ALL=C sort -f
} >constraints.new
mv constraints.new constraints.txt
