#include "verify/Finding.h"

#include "ir/Error.h"
#include "verify/Compare.h"

namespace gpt2c {

/// Of a plan in f16 or bf16 whose functions were right before that: whether numbers of the model
/// are larger than the type holds, or within some factors by which a plan's differ from them.
static bool overflows(const Finding &finding, DType precision) {
  const double largest = precision == DType::F16 ? 65504 : 3.39e38;
  return finding.lost && finding.largest > largest / 16;
}

llvm::Error explained(const Finding &finding, const CheckOptions &options, bool rounding) {
  const std::string name = options.narrow == DType::F16 ? "fp16" : "bf16",
                    wider = options.narrow == DType::F16 ? "--precision=bf16, whose numbers are as "
                                                           "large as those of fp32, or fp32"
                                                         : "--precision=fp32",
                    finer = options.narrow == DType::F16 ? "--precision=fp32 or bf16"
                                                         : "--precision=fp32 or fp16";
  if (options.narrow != DType::F32 && overflows(finding, options.narrow))
    return makeError(ExitCode::Quality,
                     name + " overflows: " + finding.text + "\n  numbers of this model reach " +
                         threeDigits(finding.largest) + ", " + name + " holds those up to " +
                         (options.narrow == DType::F16 ? "65504" : "3.39e+38") +
                         "; in single precision the same functions compute what the exported "
                         "graph does: compile with " +
                         wider);
  if (options.int8Loss)
    return makeError(
        ExitCode::Quality,
        "int8 loses too much of what the model computes: " + finding.text +
            "\n  without int8 the same functions compute what the exported graph does; " +
            (options.int8Smooth ? ""
                                : "--quantize=w8a8-smooth moves outliers of activations into "
                                  "the weights, ") +
            "--quantize=w8a16 keeps activations as they are, --quantize-exclude=REGEX keeps layers "
            "out, --max-ppl-increase chooses them");
  if (rounding)
    return makeError(ExitCode::Quality,
                     name + " rounds away too much of what the model computes: " + finding.text +
                         "\n  the same functions compute what the exported graph does in single "
                         "precision, and these do in double: compile with " +
                         finer);
  return makeError(
      ExitCode::Quality,
      "the plan does not compute what the exported graph does: " + finding.text +
          "\n  no plan is good that differs: please report it; -O0 or --disable-pass may avoid "
          "it, --verify=off does not look");
}

} // namespace gpt2c
