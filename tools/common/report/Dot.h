// The graph of a module for Graphviz.
#pragma once

#include "ir/Function.h"

#include "llvm/Support/raw_ostream.h"

namespace gpt2c {

/// One cluster for each function (all, or those in `functions`); in it a box for each op but
/// constants, which are lines in the boxes that read them. An op made of several ONNX nodes is a
/// cluster of its own, with their names.
void writeDot(const Module &module, llvm::ArrayRef<std::string> functions, llvm::raw_ostream &os);

} // namespace gpt2c
