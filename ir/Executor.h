// The reference executor: runs any function of the IR on the host, op by op.
//
// It is the oracle of the tests, the constant folder, the probe of the recognising passes and the
// CPU device.
#pragma once

#include "ir/Decisions.h"
#include "ir/Eval.h"

#include "llvm/ADT/DenseMap.h"

#include <functional>

namespace gpt2c {

struct ExecOptions {
  /// Compute every floating-point value in double precision; arguments and constants are widened,
  /// results stay F64. What decides by lengths and positions alone keeps its types (Decisions.h).
  bool float64 = false;
  /// With `float64`, unless 0: each value that the function has in half precision is moved at
  /// random by up to half a unit of its type, as rounding to nearest may. A sample of what rounding
  /// does.
  uint64_t roundingSeed = 0;
  /// Keep f16 and bf16 constants widened to F32 between runs: faster, at twice the memory.
  bool cacheWidenedConstants = true;
  /// Where widened constants are kept, by their bytes, for executors over functions that share
  /// constants; absent: each keeps its own. The constants must outlive it.
  struct WidenedConstants {
    llvm::DenseMap<std::pair<const void *, uint64_t>, Tensor> byBytes;
  };
  std::shared_ptr<WidenedConstants> widenedConstants = nullptr;
};

/// Binds the symbols in `dims` to `shape`; fails when they disagree with `symbols` or with
/// constants. Dimensions that are expressions (`past + seq`) are solved when one symbol in them is
/// unknown, checked otherwise; returns false when one had to be left for later.
llvm::Expected<bool> bindShape(llvm::ArrayRef<Dim> dims, llvm::ArrayRef<int64_t> shape,
                               SymbolMap &symbols, const llvm::Twine &what);

class Executor {
public:
  explicit Executor(const Function &function, ExecOptions options = {});

  /// Runs the whole function. Arguments in order; their dtypes must be the declared ones (any float
  /// type when running in float64). Symbols are bound from shapes; `symbols` gives those that no
  /// argument carries.
  llvm::Expected<std::vector<Tensor>> run(llvm::ArrayRef<Tensor> arguments, SymbolMap symbols = {});

  /// Computes `wanted` only, from values bound beforehand. Fails when it would need an unbound
  /// argument.
  using Bindings = llvm::DenseMap<const Value *, Tensor>;
  llvm::Expected<std::vector<Tensor>> evaluate(llvm::ArrayRef<Value *> wanted, Bindings bound,
                                               const SymbolMap &symbols);

private:
  /// Ops in `narrow` are computed in their own types where the others are in double precision.
  llvm::Error execute(Op &op, Bindings &values, const SymbolMap &symbols, const OpSet &narrow);
  Tensor widen(const Tensor &t) const;
  Tensor widenConstant(const Tensor &t);
  Tensor resultType(const Value &v, const Tensor &t) const;

  const Function &function_;
  ExecOptions options_;
  uint64_t moved_ = 0; ///< results that were moved so far
};

/// Evaluates one op whose operands are all constants; used by the constant folder.
llvm::Expected<std::vector<Tensor>> evaluateOp(Op &op, llvm::ArrayRef<Tensor> inputs,
                                               const SymbolMap &symbols, bool float64 = false);

} // namespace gpt2c
