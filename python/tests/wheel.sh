#!/usr/bin/env bash
# wheel.sh PYTHON: the Python package packed from the build, as people install it: it imports, its
# tools run, and its list of files is what is in it. And what `make demo` compiles for.
. "$GPT2C_SOURCE_DIR/tests/skip.bash"
set -uo pipefail
python=$1
build=$(cd "$(dirname "$(command -v gpt2c)")/.." && pwd)
failed=0
fail() {
  echo "FAIL: $*"
  failed=1
}
if command -v make >/dev/null; then
  arch=none
  compgen -G '/dev/nvidia[0-9]*' >/dev/null || [ -e /dev/dxg ] && arch=native
  said=$(make -n -C "$GPT2C_SOURCE_DIR" demo BUILD="$build" 2>&1)
  grep -q -- "--gpu-arch=$arch" <<<"$said" || fail "make demo is not for '$arch': $said"
fi
nm -D "$build/lib/libgpt2c.so" | grep -q '__asan_init\|__tsan_init' &&
  skip "Python cannot load a sanitized module"
"$python" -c 'import scikit_build_core, numpy' 2>/dev/null ||
  skip "Python has no scikit_build_core or numpy; scripts/setup.sh --tests installs them"
rm -rf dist installed
wheel=$("$python" "$GPT2C_SOURCE_DIR/scripts/make-wheel.py" "$build" dist 2>log.txt) ||
  { cat log.txt; exit 1; }
"$python" - "$wheel" installed <<'PYTHON' || fail "the wheel's list of files"
import base64, csv, hashlib, io, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    names = wheel.namelist()
    record = next(n for n in names if n.endswith(".dist-info/RECORD"))
    rows = list(csv.reader(io.StringIO(wheel.read(record).decode())))
    assert sorted(names) == sorted(r[0] for r in rows), "not every file is listed"
    for name, digest, size in rows:
        data = wheel.read(name)
        text = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        assert name == record or (digest, size) == (f"sha256={text}", str(len(data))), name
    assert any(n.endswith(".dist-info/METADATA") for n in names)
    wheel.extractall(sys.argv[2])
PYTHON
chmod +x installed/gpt2c/bin/*
version=$(gpt2c --version | grep -o '[0-9]*\.[0-9]*\.[0-9]*' | head -1)
case $wheel in *"/gpt2c-$version-cp3"*.whl) ;; *) fail "its name: $wheel" ;; esac
(cd installed && env PYTHONPATH="$PWD:$PYTHONPATH" "$python" - "$GPT2C_SOURCE_DIR" "$PWD" <<'PYTHON'
import sys, gpt2c
assert gpt2c.__file__.startswith(sys.argv[2]), gpt2c.__file__
llm = gpt2c.from_pretrained(sys.argv[1] + "/examples/sample", gpu_arch="none", device="cpu",
                            verify="off")
greedy = gpt2c.SamplingParams(temperature=0, max_tokens=4)
assert llm.generate("She opened the door and", greedy)[0].outputs[0].text == " the door opened."
PYTHON
) || fail "the package in the wheel"
rm -rf dist installed
exit $failed
