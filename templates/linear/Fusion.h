// Which neighbours of a product its kernel computes with it.
#pragma once

#include "templates/linear/Kernels.h"

namespace gpt2c {

/// A constant of ones.
bool isOnes(const Value *v);
inline bool isConstant(const Value *v) { return v && v->def() && v->def()->is(OpCode::Constant); }
inline bool isNorm(const Op &op) { return op.is(OpCode::LayerNorm) || op.is(OpCode::RmsNorm); }
/// A norm over the last axis with one gain and bias per element.
bool isRowNorm(const Op &op);
/// A layer norm without gain and shift, as fold-norms leaves it.
bool isFoldedNorm(const Op &op);

LinearProblem linearProblem(StepBuilder &b, const Op &product);
/// The same with the norm that stands before it.
LinearProblem withNorm(LinearProblem p, const Op &product, const Op &norm);

/// The norm before a product that its kernel computes itself while the weights are on their way, or
/// folds into its epilogue; null when there is none.
Op *fusedNorm(StepBuilder &b, const Op &product);
/// The gated behind a product that its kernel's epilogue applies, where that costs less than a
/// launch of its own; null: none is. Its columns have to be interleaved, and nothing else reads
/// them.
Op *fusedGate(StepBuilder &b, const Op &product);
/// Whether products fold a norm of `v` into their epilogue where its statistics are known.
bool wantsStatistics(StepBuilder &b, Value *v);
/// Whether a product leaves statistics of its result: somebody wants them, or those of a product
/// that differs in its operands alone, since to leave some that nobody reads costs less than a
/// kernel without them.
bool leavesStatistics(StepBuilder &b, const Op &product);
/// Columns of a part of the statistics that products leave for readers like those of `v`, so that
/// one kernel reads both; the whole row where there are none.
int64_t statisticsWidthOfPeers(StepBuilder &b, Value *v);

/// Whether `v` is a gather_last that nothing but products adds to their rows: they read it where it
/// comes from, and it has no step.
bool isReadInPlace(const Value *v);
/// Whether the result has the rows of the operand, maybe in a wider type: the largest element of
/// each is at the same place.
bool keepsRows(const Op &op);
/// Whether the index of the largest element of each row is asked for.
bool hasGreedyChoice(const Value *v);

} // namespace gpt2c
