# Tests call the tools, FileCheck and not by name. %shared is the folder of larger models (feature
# "shared"; lit --param=shared=FOLDER looks for it elsewhere), %sample the sample model in this
# repository (feature "sample"). Feature "nvrtc" is set where kernels can be compiled, "gpu" where
# CUDA has a device. With %{uncompiled} ahead of gpt2c a plan has all that codegen decides, and
# kernels are text (feature "echo").
import os
import subprocess

import lit.formats

config.name = "gpt2c"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".ir", ".test"]
config.test_source_root = os.path.dirname(__file__)
config.environment["PATH"] = os.pathsep.join([config.gpt2c_bin, config.filecheck_dir,
                                              os.environ.get("PATH", "")])
for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "GPT2C_CUDA_PATH", "LD_LIBRARY_PATH",
             "OPENBLAS_NUM_THREADS"):
    if name in os.environ:
        config.environment[name] = os.environ[name]

config.gpt2c_shared = lit_config.params.get("shared", config.gpt2c_shared)
sample = os.path.join(config.gpt2c_source, "examples", "sample")
config.substitutions += [("%shared", config.gpt2c_shared), ("%sample", sample)]
if os.path.isdir(os.path.join(config.gpt2c_shared, "models")):
    config.available_features.add("shared")
if os.path.isfile(os.path.join(sample, "model.onnx")):
    config.available_features.add("sample")
config.environment["XDG_CACHE_HOME"] = os.path.join(config.test_exec_root, "cache")
# A sanitizer takes more address space than any limit, and LeakSanitizer may crash while the threads
# of NVRTC end: then nothing compiles kernels.
if config.sanitized:
    config.available_features.add("sanitized")
# NVRTC is looked for before the model is read: 5 without it, 2 for the model that is not there.
probe = [os.path.join(config.gpt2c_bin, "gpt2c"), "/absent.onnx", "-o", "/dev/null",
         "--gpu-arch=all"]
if not config.sanitized and subprocess.run(
        probe, env=dict(os.environ, **config.environment),
        stderr=subprocess.DEVNULL).returncode == 2:
    config.available_features.add("nvrtc")
config.substitutions.append(("%{uncompiled}", "env GPT2C_CUDA_PATH=" + config.gpt2c_echo))
if not config.sanitized and os.path.isfile(os.path.join(config.gpt2c_echo, "lib", "libnvrtc.so")):
    config.available_features.add("echo")
if os.path.exists("/dev/nvidiactl"):
    config.available_features.add("gpu")
