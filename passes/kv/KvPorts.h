// The names by which the runtime knows a model's ports, for kv-transform.
#pragma once

#include "passes/Pass.h"
#include "passes/proof/KvInterface.h"

namespace gpt2c {

/// The arguments whose meaning is known get its name, and are i32.
llvm::Error nameArguments(Function &f, KvInterface &io);
/// Plain ports get other names than those that say what a port is.
void renamePlainPorts(Function &f, KvInterface &io);
/// The graph as it is, with the names that the runtime knows its ports by.
llvm::Error keepGraph(Function &f, KvInterface &io);
/// Exporters call the symbols what they like; from here on they are batch, seq and past.
void nameSymbols(Function &f, const KvInterface &io);
/// Notes what of the ports a caller may not expect.
void notePorts(PassContext &ctx, const Function &f, const KvInterface &io);

} // namespace gpt2c
