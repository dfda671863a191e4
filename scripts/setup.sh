#!/usr/bin/env bash
# Installs what building gpt2c needs on Debian 12 or Ubuntu 24.04; does nothing where all of it is
# there.
#   scripts/setup.sh           packages and NVRTC
#   scripts/setup.sh --grammar also XGrammar, which structured output takes, built from its source
#                              package: one to two minutes of two cores, once
#   scripts/setup.sh --tests   also what tests take beyond that: ONNX Runtime, which tests/meaning
#                              compares with, XGrammar, and what the Python package is built and
#                              tested with.
#                              Where one cannot be had, a line says which tests will be skipped
#   scripts/setup.sh --dev     also clang, clang-tidy and clang-format (the fuzz preset, the checks
#                              of .ci/run)
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
"" | --grammar | --tests | --dev) ;;
*) echo "setup: no option '$1': --grammar, --tests, --dev" >&2; exit 1 ;;
esac

say() { echo "setup: $*" >&2; }
die() { say "$*"; exit 1; }

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

asRoot() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "needs root for: $*"
  fi
}

aptUpdated=
aptUpdate() {
  [ -n "$aptUpdated" ] || asRoot apt-get -qq update || die "apt-get update failed"
  aptUpdated=1
}

# apt-get install of those arguments that are not installed yet.
aptInstall() {
  local missing=() package
  for package in "$@"; do
    installed "$package" || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "installing ${missing[*]}"
  aptUpdate
  asRoot env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o Dpkg::Use-Pty=0 install \
    --no-install-recommends \
    "${missing[@]}" >/dev/null || die "apt-get install failed"
}

# The LLVM release to use: one that is installed, else the newest supported one the distribution
# has.
llvmVersion() {
  local version
  for version in 19 18 20 17 16; do
    if installed "llvm-$version-dev"; then
      echo "$version"
      return
    fi
  done
  aptUpdate
  for version in 19 18 20 17 16; do
    if apt-cache show "llvm-$version-dev" >/dev/null 2>&1; then
      echo "$version"
      return
    fi
  done
  die "no package llvm-N-dev with N in 16..20; see https://apt.llvm.org"
}

# The package of Boost's headers, of a release that has Boost.JSON (1.75 or later).
boostPackage() {
  local package
  for package in libboost1.81-dev libboost1.83-dev; do
    if installed "$package"; then
      echo "$package"
      return
    fi
  done
  aptUpdate
  for package in libboost1.81-dev libboost1.83-dev; do
    if apt-cache show "$package" >/dev/null 2>&1; then
      echo "$package"
      return
    fi
  done
  echo libboost-dev
}

installPackages() {
  command -v apt-get >/dev/null ||
    die "this script knows apt only (Debian 12, Ubuntu 24.04); see docs/getting-started.md"
  llvm=$(llvmVersion)
  aptInstall g++ cmake ninja-build python3 pkg-config \
    "llvm-$llvm-dev" "llvm-$llvm-tools" libzstd-dev zlib1g-dev libncurses-dev \
    libonnx-dev libprotobuf-dev protobuf-compiler libflatbuffers-dev flatbuffers-compiler \
    libopenblas-dev libxxhash-dev libpcre2-dev libutf8proc-dev \
    nlohmann-json3-dev libgtest-dev libedit-dev "$(boostPackage)"
  if [ "${1:-}" = --dev ]; then
    aptInstall "clang-$llvm" "clang-tidy-$llvm" "clang-format-$llvm" "libclang-rt-$llvm-dev" git
  fi
}

# True when $1 holds a CUDA toolkit of at least 12.4: NVRTC and the headers kernels include.
usableCuda() {
  local version
  [ -r "$1/include/cuda.h" ] && [ -r "$1/include/cuda_fp16.h" ] || return 1
  compgen -G "$1/lib*/libnvrtc.so.*" >/dev/null || return 1
  version=$(sed -n 's/^#define CUDA_VERSION \([0-9]*\).*/\1/p' "$1/include/cuda.h")
  [ "${version:-0}" -ge 12040 ]
}

# NVRTC and its headers from NVIDIA's wheels on PyPI, unpacked into .deps/cuda. Release 13.0: a
# cubin of NVRTC 13.x loads with any driver of the 13 line.
fetchCuda() {
  local root wheel
  if ! python3 -m pip --version >/dev/null 2>&1; then
    aptInstall python3-pip
  fi
  say "fetching NVRTC 13.0 (wheels nvidia-cuda-nvrtc, -runtime, -crt, -cccl; 91 MB)"
  mkdir -p .deps
  work=$(mktemp -d .deps/cuda.XXXXXX)
  trap 'rm -rf "$work"' EXIT
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --dest "$work/wheels" \
    --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
    --platform manylinux2010_x86_64 \
    --platform manylinux_2_12_x86_64 \
    nvidia-cuda-nvrtc==13.0.* nvidia-cuda-runtime==13.0.* \
    nvidia-cuda-crt==13.0.* nvidia-cuda-cccl==13.0.* \
    || die "pip download failed; install the CUDA toolkit (>= 12.4) or set GPT2C_CUDA_PATH to one"
  for wheel in "$work"/wheels/*.whl; do
    python3 -m zipfile -e "$wheel" "$work/unpacked"
  done
  root=$(dirname "$(find "$work/unpacked" -name cuda_fp16.h | head -n 1)")/..
  mkdir -p "$work/cuda/include" "$work/cuda/lib"
  cp "$root"/include/*.h "$root"/include/*.hpp "$work/cuda/include"
  cp -r "$root/include/crt" "$root/include/nv" "$work/cuda/include"
  find "$work/unpacked" -name 'libnvrtc*.so.*' ! -name '*.alt.so.*' -exec cp {} "$work/cuda/lib" \;
  find "$work/unpacked" -path '*nvidia_cuda_nvrtc*' -iname 'license*' -type f -exec cp {} \
    "$work/cuda" \;
  rm -rf .deps/cuda
  mv "$work/cuda" .deps/cuda
}

provideCuda() {
  local root
  for root in ${GPT2C_CUDA_PATH:+"$GPT2C_CUDA_PATH"} .deps/cuda /usr/local/cuda; do
    if usableCuda "$root"; then
      say "NVRTC: $root"
      return
    fi
  done
  fetchCuda
  usableCuda .deps/cuda || die "the wheels unpacked into .deps/cuda lack NVRTC or its headers"
  say "NVRTC: .deps/cuda"
}

xgrammar=0.2.9

# XGrammar from its source package on PyPI, a static library with its headers, into .deps/xgrammar:
# without Python's part of it, quiet, and without link time optimisation. A dozen sources at a time
# take a hundred seconds of a core.
fetchXgrammar() {
  local source launcher=() flags='-O2 -g0 -fno-lto -Wno-error -DXGRAMMAR_LOG_CUSTOMIZE=1'
  local have="$xgrammar $flags"
  [ "$(cat .deps/xgrammar/have.txt 2>/dev/null)" = "$have" ] && return
  if ! python3 -m pip --version >/dev/null 2>&1; then
    aptInstall python3-pip
  fi
  say "fetching and building XGrammar $xgrammar"
  work=.deps/xgrammar.new # one name, so that ccache knows it again
  rm -rf "$work"
  mkdir -p "$work"
  trap 'rm -rf "$work"' EXIT
  # Its metadata are read, for which pip fetches a build system; none of its dependencies is.
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary xgrammar \
    --dest "$work" "xgrammar==$xgrammar" || die "pip download failed"
  tar -xzf "$work/xgrammar-$xgrammar.tar.gz" -C "$work"
  source=$work/xgrammar-$xgrammar
  mkdir "$work/build"
  printf 'set(XGRAMMAR_BUILD_%s OFF)\n' PYTHON_BINDINGS CXX_TESTS >"$work/build/config.cmake"
  if command -v ccache >/dev/null; then
    launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  fi
  if ! { cmake -S "$source" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release "${launcher[@]}" \
    -DCMAKE_CXX_FLAGS="$flags -ffunction-sections -fdata-sections -fvisibility=hidden" \
    -DCMAKE_CXX_FLAGS_RELEASE=-DNDEBUG -DCMAKE_INSTALL_PREFIX="$PWD/$work/xgrammar" \
    -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=12 \
    -DCMAKE_INSTALL_LIBDIR=lib &&
    cmake --build "$work/build" --target install; } >"$work/log" 2>&1; then
    tail -n 20 "$work/log" >&2
    die "XGrammar did not build"
  fi
  cp "$source/LICENSE" "$source/NOTICE" "$work/xgrammar"
  echo "$have" >"$work/xgrammar/have.txt"
  rm -rf .deps/xgrammar
  mv "$work/xgrammar" .deps/xgrammar
}

# Packages of Python from PyPI into .deps/python. Fails where they cannot be had.
fetchPython() {
  local wanted=(tests/meaning/requirements.txt python/requirements.txt) python=.deps/python
  cat "${wanted[@]}" | cmp -s - $python/have.txt && return
  if ! python3 -m pip --version >/dev/null 2>&1; then
    aptInstall python3-pip
  fi
  say "fetching ONNX Runtime, nanobind, pytest and mypy for tests (90 MB)"
  rm -rf $python.new
  mkdir -p .deps
  PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --disable-pip-version-check \
    --only-binary=:all: --target $python.new -r "${wanted[0]}" -r "${wanted[1]}" ||
    die "pip install failed"
  cat "${wanted[@]}" >$python.new/have.txt
  rm -rf $python
  mv $python.new $python
}

# What tests alone need: each in a shell of its own, which ends where it fails.
provideForTests() {
  (aptInstall python3-dev) ||
    say "there is no python3-dev: the tests of the Python package will be skipped"
  (fetchPython) ||
    say "there is no ONNX Runtime, nanobind, pytest or mypy: tests that need one will be skipped"
  (fetchXgrammar) || say "there is no XGrammar: the tests of structured output will be skipped"
}

installPackages "$@"
provideCuda
case ${1:-} in
"") ;;
--grammar) fetchXgrammar ;;
*) provideForTests ;;
esac
