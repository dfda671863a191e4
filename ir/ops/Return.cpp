#include "ir/ops/Common.h"

namespace gpt2c {

const OpInfo opReturn = {
    .code = OpCode::Return,
    .mnemonic = "return",
    .summary = "ends a function with its results",
    .operands = {{"values", OperandSpec::Variadic}},
    .numResults = 0,
    .traits = Terminator,
};

} // namespace gpt2c
