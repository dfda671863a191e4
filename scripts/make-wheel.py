#!/usr/bin/env python3
"""make-wheel.py BUILD [FOLDER]: the Python package as a wheel in FOLDER (default BUILD/dist), from
what BUILD has compiled: nothing is compiled again. BUILD is configured with GPT2C_PYTHON; its
target gpt2c_wheel is what goes in. `pip wheel .` does all of it from sources instead."""
import base64
import glob
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.append(os.path.join(ROOT, ".deps", "python"))

try:
    from scikit_build_core.build import prepare_metadata_for_build_wheel
except ImportError:
    sys.exit("error: Python has no scikit-build-core; scripts/setup.sh --tests installs it")


def fill(build, folder):
    """The package, as `cmake --install` and pip lay it out, and its metadata's folder."""
    package = os.path.join(folder, "gpt2c")
    subprocess.run(["cmake", "--install", build, "--component", "python", "--strip", "--prefix",
                    package], check=True, stdout=subprocess.DEVNULL)
    if not glob.glob(os.path.join(package, "_core.*.so")):
        sys.exit(f"error: '{build}' has no Python package: configure it with -DGPT2C_PYTHON=ON")
    for file in glob.glob(os.path.join(ROOT, "python", "gpt2c", "*.py")) + [
            os.path.join(ROOT, "python", "gpt2c", "py.typed")]:
        shutil.copy(file, package)
    before = os.getcwd()
    os.chdir(ROOT)
    try:
        return prepare_metadata_for_build_wheel(folder, {})
    finally:
        os.chdir(before)


def tag():
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return f"{version}-{version}-{platform}"


def pack(folder, info, path):
    """Every file with its hash, the list of them last."""
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=4) as wheel:
        for at, _, names in sorted(os.walk(folder)):
            for name in sorted(names):
                file = os.path.join(at, name)
                inside = os.path.relpath(file, folder)
                with open(file, "rb") as content:
                    digest = hashlib.sha256(content.read()).digest()
                text = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
                record.append(f"{inside},sha256={text},{os.path.getsize(file)}\n")
                wheel.write(file, inside)
        record.append(f"{info}/RECORD,,\n")
        wheel.writestr(f"{info}/RECORD", "".join(record))


def main(build, target=None):
    build = os.path.abspath(build)
    target = os.path.abspath(target or os.path.join(build, "dist"))
    os.makedirs(target, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        # What the build backend says goes to stdout, which is for the wheel's name.
        out = os.dup(1)
        os.dup2(2, 1)
        info = fill(build, folder)
        os.dup2(out, 1)
        with open(os.path.join(folder, info, "WHEEL"), "w", encoding="ascii") as file:
            file.write(f"Wheel-Version: 1.0\nGenerator: gpt2c\nRoot-Is-Purelib: false\n"
                       f"Tag: {tag()}\n")
        path = os.path.join(target, f"{info.removesuffix('.dist-info')}-{tag()}.whl")
        pack(folder, info, path)
    print(path)


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
