#!/usr/bin/env bash
# scripts/check-wheel.sh [BUILD]: `pip wheel .`, installs that into an empty environment, looks at
# what it carries, and runs the package's tests there. Packages come from PyPI. The build stays in
# BUILD (default build-wheel) for the next time, the wheel in BUILD/check/dist.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
build=${1:-build-wheel}
mkdir -p "$build/check"
build=$(cd "$build" && pwd)
work=$build/check

say() { echo "wheel: $*" >&2; }
die() { say "$*"; exit 1; }

rm -rf "$work/dist" "$work/venv" "$work/empty"
mkdir -p "$work/empty"
python3 -m venv "$work/venv"
python=$work/venv/bin/python
"$python" -m pip install --quiet --disable-pip-version-check -r python/requirements.txt
say "building"
"$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
  --config-settings=build-dir="$build" --wheel-dir "$work/dist" .
"$python" -m pip install --quiet --disable-pip-version-check --no-deps "$work"/dist/gpt2c-*.whl

cd "$work/empty"
package=$("$python" -c 'import gpt2c, os; print(os.path.dirname(gpt2c.__file__))')
version=$("$python" -c 'import gpt2c; print(gpt2c.__version__)')
case $package in "$work/venv"/*) ;; *) die "the package came from $package" ;; esac
[ "$("$python" -m pip show gpt2c | sed -n 's/^Version: //p')" = "$version" ] ||
  die "the wheel's version is not $version"
for tool in "$package"/bin/*; do
  name=$(basename "$tool")
  [ -x "$work/venv/bin/$name" ] || die "pyproject.toml has no entry point for $name"
  "$work/venv/bin/$name" --version | grep -qF "$version" || die "$name does not run"
done
for name in gpt2c gpt2c-run gpt2c-eval gpt2c-dump; do
  [ -x "$package/bin/$name" ] || die "the wheel has no $name"
done
for file in _core.pyi py.typed lib/libgpt2c_blas.so lib/libgpt2c_cpu.so.0 licenses/nanobind; do
  [ -f "$package/$file" ] || die "the wheel has no $file"
done
[ -n "$(ls "$package/licenses")" ] || die "the wheel has no licences"
# Nothing but the system's C libraries is needed from outside, by the tools not even Python.
for file in "$package"/bin/* "$package"/*.so "$package"/lib/*.so; do
  needed=$(objdump -p "$file" | sed -n 's/^ *NEEDED *//p' |
    grep -vE '^(lib(c|m|dl|pthread|rt|gpt2c_blas)\.so|ld-linux)' || true)
  [ -z "$needed" ] || die "$(basename "$file") needs $needed"
done
say "testing $("$python" -c 'import sys; print(sys.version.split()[0])')," \
  "$(du -h "$work"/dist/*.whl | cut -f1)"
GPT2C_SOURCE_DIR=$root "$python" "$root/python/tests/run.py"
say "ok"
