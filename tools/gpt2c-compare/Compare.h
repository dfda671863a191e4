// gpt2c-compare: the parts of the tool.
#pragma once

#include "tools/common/tuning/StepTrace.h"

#include "frontend/files/TensorProto.h"

#include <string>
#include <vector>

namespace gpt2c {

/// What was compared and what came of it.
struct Comparison {
  std::string plan, device, against;
  TraceCall call;
  double tolerance = 0;
  std::vector<std::string> steps; ///< Trace::steps
  std::vector<ValueError> errors;
  /// Nothing can be run on the plan's inputs: errors are those of tensors, not of steps.
  bool totals = false;

  /// What is judged: the error a step adds, or that of a tensor.
  double judged(const ValueError &e) const { return totals ? e.total.relative : e.own(); }
  /// Above the tolerance, or NaN or infinity that the step made.
  bool isOver(const ValueError &e) const {
    const Difference &d = e.hasAdded ? e.added : e.total;
    return judged(e) > tolerance || d.lost || (e.made && e.nans > 0);
  }
  /// The first that is over; null: none is.
  const ValueError *first() const;
  const ValueError *worst() const;
};

/// The op that a value is of, as its step computes it: "linear+gelu_tanh".
std::string opName(const Value &v);
/// A name of the exported graph: the value's own, or the first of its ONNX nodes.
std::string onnxName(const Value &v);
/// What the first that is over does, in some lines; or that there is none.
std::string describeFirst(const Comparison &comparison);

void printTable(const Comparison &comparison, llvm::raw_ostream &os);
void printJson(const Comparison &comparison, llvm::raw_ostream &os);
/// A page with a plot of the errors over the steps.
void writePage(const Comparison &comparison, llvm::raw_ostream &os);

/// The tensors of a NumPy archive, or of the .pb files of a folder.
llvm::Expected<std::vector<NamedTensor>> readTensors(const std::string &path);
/// Each traced value of the call against the tensor of its name, or of one of its ONNX nodes, with
/// as many elements, or those of all tokens where the value has the last ones alone; of several the
/// nearest.
std::vector<ValueError> compareTensors(llvm::ArrayRef<TracedValue> traced,
                                       llvm::ArrayRef<NamedTensor> tensors, const TraceCall &call,
                                       const plan::PlanT &meta);

} // namespace gpt2c
