// What a module with one function, given as text, becomes: its steps and their kernels.
#pragma once

#include "codegen/StepBuilder.h"
#include "templates/Lowerings.h"

#include "ir/Text.h"

#include <gtest/gtest.h>

#include <string>

namespace gpt2c {

struct LoweredText {
  PlanPool pool;
  plan::FunctionT function;

  /// For one architecture. The function's second result is the KV state. What fails is a failure of
  /// the test.
  LoweredText(const std::string &text, const std::string &arch, const SymbolBounds &bounds) {
    auto module = parseModule(text, "test.ir");
    if (!module) {
      ADD_FAILURE() << llvm::toString(module.takeError()) << text;
      return;
    }
    pool.target = Target::of({arch});
    Function &f = *(*module)->functions.front();
    f.resultNames[1] = "kv";
    StepBuilder b(pool, function, bounds);
    if (llvm::Error e = build(b, f))
      ADD_FAILURE() << llvm::toString(std::move(e));
  }

  /// The kernel of a step, without its number or hash.
  std::string kernelOf(const plan::StepT &step) const {
    const std::string &name = pool.kernels()[step.kernel].name;
    return name.substr(0, name.rfind('_'));
  }
};

} // namespace gpt2c
