// Writes the struct of an epilogue, stage by stage.
#pragma once

#include "templates/linear/parts/Epilogue.h"

namespace gpt2c {

/// The function of epilogue:: that a stage of an activation calls.
std::string functionOf(EpilogueStage::Kind activation);

/// The parts of the struct that its stages add to.
class EpilogueWriter {
public:
  explicit EpilogueWriter(KernelWriter &w);

  void stage(const EpilogueStage &stage);
  /// Writes it; the expression that makes one for rows of `n` elements.
  std::string finish(llvm::StringRef n);

  // What stages are written with.
  void include(llvm::StringRef header) { w_.include(header); }
  /// Declares a parameter of the kernel; its name.
  std::string declare(llvm::StringRef type, llvm::StringRef name) { return w_.declare(type, name); }
  /// A member of the struct; `value` initialises it.
  void field(const llvm::Twine &type, const llvm::Twine &name, llvm::StringRef value);
  /// A type of that name, which kernels ask for (templates/linear/parts/epilogue.cuh).
  void trait(const llvm::Twine &name) { traits_ += ("  using " + name + " = void;\n").str(); }
  /// A statement on the values v[V].
  void line(const llvm::Twine &statement) { body_ += ("    " + statement + "\n").str(); }
  /// `function` of epilogue:: on the values v.
  void apply(const llvm::Twine &call) { line("epilogue::" + call + ";"); }
  /// Kernels are given outer<the struct, types>{the struct, values}.
  void wrapIn(llvm::StringRef outer, std::string types, std::string values);

private:
  using Kind = EpilogueStage::Kind;

  std::string nextOperand() { return "e" + std::to_string(operands_++); }
  /// Applies the operand e by `function`; `load` reads it at e + `from`.
  void operand(const EpilogueStage &stage, llvm::StringRef function, llvm::StringRef load,
               const llvm::Twine &from);
  /// One for each column: may be prefetched, and staged in shared memory.
  void column(const EpilogueStage &stage, llvm::StringRef function);
  void matrix(const EpilogueStage &stage, llvm::StringRef function) {
    operand(stage, function, "loadFloats", " + row * n + col");
  }
  void lastRows(const EpilogueStage &stage);
  void quantise(llvm::StringRef type, Given given);

  KernelWriter &w_;
  int operands_ = 0, columns_ = 0;
  std::string fields_, values_, loaded_, loads_, body_, prefetches_, staged_, traits_;
  struct {
    std::string type, types, values;
  } outer_; ///< around the struct; no type: nothing is
};

} // namespace gpt2c
