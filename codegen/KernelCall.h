// A generic kernel and the arguments of its launch, written together: every parameter is declared
// with the argument it gets. The kernels are instances of the templates that take strides.
#pragma once

#include "codegen/Grid.h"
#include "codegen/KernelWriter.h"
#include "codegen/StepBuilder.h"

#include "llvm/ADT/Twine.h"

namespace gpt2c {

/// An unsigned integer as wide as an element, for copies.
llvm::StringRef cudaWord(DType t);

/// A loop over n-d positions: the sizes of its axes, outermost first, and for each tensor its
/// strides in elements along them.
struct Loop {
  Shape sizes;
  std::vector<Shape> strides;

  /// Drops axes of size 1 and joins neighbours that every tensor walks like one axis.
  void simplify();
};

Shape denseStrides(llvm::ArrayRef<Dim> shape);
/// Strides of a tensor of shape `in` broadcast to `out`. A symbolic dimension is that of `out`, as
/// inference assumes.
Shape broadcastStrides(llvm::ArrayRef<Dim> in, llvm::ArrayRef<Dim> out);
/// An elementwise loop over the shape of `y`: dense y, then the operands, broadcast.
Loop broadcastLoop(const Value *y, llvm::ArrayRef<Value *> operands);

class KernelCall {
public:
  /// A kernel for `op`, named after it, of the template in `header`.
  KernelCall(StepBuilder &b, Op &op, llvm::StringRef header)
      : KernelCall(b, op.info().mnemonic, op.locations, header) {}
  KernelCall(StepBuilder &b, llvm::StringRef what, llvm::ArrayRef<llvm::StringRef> nodes,
             llvm::StringRef header);

  //===-- the template's config ---------------------------------------------------------------===//
  void type(llvm::StringRef name, const llvm::Twine &cuda) { writer_.type(name, cuda); }
  void constant(llvm::StringRef name, int64_t value) { writer_.constant(name, value); }
  void flag(llvm::StringRef name, bool value) { writer_.flag(name, value); }
  std::string config() const { return writer_.config(); }

  //===-- parameters --------------------------------------------------------------------------===//
  /// A tensor that is read or written, as elements of its own type or as `cuda`.
  void in(llvm::StringRef name, Value *v, llvm::StringRef cuda = {});
  void out(llvm::StringRef name, Value *v, llvm::StringRef cuda = {});
  void pointer(llvm::StringRef name, llvm::StringRef cuda, llvm::Expected<plan::ArgT> argument,
               bool written = false);
  void integer(llvm::StringRef name, plan::ExprT value);
  void integer(llvm::StringRef name, const Dim &value) { integer(name, b_.expr(value)); }
  void real(llvm::StringRef name, double value);
  /// The parameters of a loop; returns the expression of its Axes.
  std::string axes(llvm::StringRef name, const Loop &loop);

  /// Launches one block for each of `rounds`, within limits: the kernels loop over what is left.
  llvm::Error launch(unsigned threads, plan::ExprT rounds, const llvm::Twine &body,
                     const Dim &bytes, const Dim &flops);
  /// The same with the costs that the op states.
  llvm::Error launch(Op &op, unsigned threads, plan::ExprT rounds, const llvm::Twine &body);

private:
  StepBuilder &b_;
  llvm::StringRef what_;
  llvm::ArrayRef<llvm::StringRef> nodes_;
  KernelWriter writer_;
  StepBuilder::Args args_;
  std::optional<llvm::Error> error_;
};

/// A map over `loop`; `body` is the CUDA text that handles the position `at`, in terms of the
/// parameters given to `call` before. Several positions share a thread.
llvm::Error launchMap(KernelCall &call, StepBuilder &b, Loop loop, const llvm::Twine &body,
                      const Dim &bytes, const Dim &flops, bool needsCoordinates = false);
llvm::Error launchMap(KernelCall &call, StepBuilder &b, Op &op, Loop loop, const llvm::Twine &body,
                      bool needsCoordinates = false);

/// Copies elements along a loop over (to, from); the offsets are in elements.
llvm::Error launchCopy(StepBuilder &b, llvm::StringRef what, llvm::ArrayRef<llvm::StringRef> nodes,
                       DType dtype, Loop loop, llvm::Expected<plan::ArgT> to,
                       llvm::Expected<plan::ArgT> from, plan::ExprT toOffset,
                       plan::ExprT fromOffset);

} // namespace gpt2c
