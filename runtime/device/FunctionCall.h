// Choosing the function of a plan that runs a call, and the values of its symbols.
#pragma once

#include "plan_generated.h"
#include "runtime/Status.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace gpt2c::rt {

using Functions = std::span<const std::unique_ptr<plan::FunctionT>>;

/// The first of this name; null when there is none.
const plan::FunctionT *findFunction(Functions functions, std::string_view name);

struct FunctionCall {
  const plan::FunctionT *function = nullptr;
  std::vector<int64_t> symbols; ///< in the order of function->symbols
};

/// The first function called `name` whose inputs can have `shapes` (in port order; a KvState
/// port has that of `kv`) with every symbol in its bounds. `past` is the value of a symbol that
/// no shape determines: only the length of past tensors, which live in the KV state, can be one.
/// Code::Usage, saying which input or symbol does not fit, when there is none.
Result<FunctionCall> chooseFunction(Functions functions, const plan::KvPlanT *kv,
                                    std::string_view name,
                                    std::span<const std::vector<int64_t>> shapes, int64_t past = 0);

/// What @forward, which has these inputs or outputs, calls a plain port: its exported name, or
/// where that means something else in functions, the name of the port with the number that it has
/// for a layer.
const std::string &portName(const plan::ExportedPortT &exported,
                            const std::vector<std::unique_ptr<plan::PortT>> &ports);

/// What functions call the input of token types: zeros unless given.
inline constexpr const char *tokenTypesName = "token_type_ids";

/// The largest value of a dimension of the function's ports.
int64_t largestDim(const plan::FunctionT &function, const plan::ExprT &dim);

/// The value of a port's shape. The expressions of a verified plan always have one within bounds.
Result<std::vector<int64_t>> portShape(const plan::PortT &port, std::span<const int64_t> symbols);

} // namespace gpt2c::rt
