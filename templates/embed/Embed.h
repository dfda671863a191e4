// embed: rows of the token table and of the position table.
#pragma once

#include "codegen/Grid.h"
#include "codegen/Lowering.h"
#include "schedule/Schedule.h"

namespace gpt2c {

/// `parts`: of the statistics of each row that are written
/// (templates/linear/parts/row_statistics.cuh).
struct EmbeddingConfig {
  Scalar w = Scalar::F16, p = Scalar::F16, y = Scalar::F16;
  int d = 0, threads = 128;
  bool position = true;
  int groups = 0; ///< scales of a row of the token table in int8; 0: it is not
  int parts = 0;
};

KernelSource embedding(llvm::StringRef name, const EmbeddingConfig &config);
/// `rows`: of all sequences.
Grid gridOf(const EmbeddingConfig &c, const plan::ExprT &rows);

llvm::Error lowerEmbed(StepBuilder &b, Op &op);
/// The same with the statistics that the group says.
llvm::Error emitEmbed(StepBuilder &b, const EmbedGroup &group);

} // namespace gpt2c
