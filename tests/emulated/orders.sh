#!/usr/bin/env bash
# orders.sh FILTER COUNT [option of suite_kernels ...]: these cases in so many orders of threads and
# copies. A wait that is missing shows in some of them.
set -euo pipefail
for ((seed = 1; seed <= $2; ++seed)); do
  echo "order $seed"
  GPT2C_EMULATED_SEED=$seed suite_kernels --arch=compute_90a --filter="$1" "${@:3}"
done
