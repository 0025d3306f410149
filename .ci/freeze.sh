#!/bin/bash
# freeze.sh: write constraints.txt from the virtual environment, after packages were added or moved on purpose.
. "$(dirname "$0")/lib.sh"

# The extra `gpu` excludes the extra `cpu`, so it is never in a developer's environment; kept by hand.
GPU_ONLY=(
  nvidia-cublas==13.10.0.20
  nvidia-cuda-nvrtc==13.5.37
  nvidia-cuda-runtime==13.5.37
  nvidia-cudnn-cu13==9.28.1.4
  nvidia-cufft==12.5.0.14
  nvidia-curand==10.4.5.25
  nvidia-nvjitlink==13.5.37
  onnxruntime-gpu==1.31.1
)
{
  echo '# Exact versions of everything a Pilothouse environment may hold; written by .ci/freeze.sh.'
  { .venv/bin/python -m pip freeze --exclude-editable && printf '%s\n' "${GPU_ONLY[@]}"; } | grep -v ' @ ' | LC_ALL=C sort -f
} >constraints.new
mv constraints.new constraints.txt
