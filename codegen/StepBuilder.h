// Builds the steps of one function: where every value lives, which kernels are launched, with which
// arguments.
#pragma once

#include "codegen/PlanPool.h"
#include "ir/Function.h"
#include "plan_generated.h"
#include "runtime/plan/Expr.h"
#include "schedule/Schedule.h"
#include "schedule/cost/Bounds.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"

#include <array>
#include <map>
#include <optional>

namespace gpt2c {

class StepBuilder;
/// How an op becomes steps by itself.
using Lowering = llvm::Error (*)(StepBuilder &, Op &);

/// How a group of a schedule becomes steps.
using Emission = llvm::Error (*)(StepBuilder &, const Group &);

class StepBuilder {
public:
  StepBuilder(PlanPool &pool, plan::FunctionT &out, SymbolBounds bounds)
      : pool_(pool), out_(out), bounds_(std::move(bounds)) {}

  /// The steps of all groups of `f`, its ports, and where everything lives.
  llvm::Error build(Function &f, const Schedule &schedule, Emission emit);

  //===-- for the lowerings of single ops -----------------------------------------------------===//
  using Args = llvm::StringMap<plan::ArgT>;

  PlanPool &pool() { return pool_; }
  const SymbolBounds &bounds() const { return bounds_; }
  /// The address of a value that exists already.
  llvm::Expected<plan::ArgT> read(Value *v);
  /// The address where a step writes a value; allocates it.
  llvm::Expected<plan::ArgT> write(Value *v);
  /// The address of f32[N]: sum_k scales[n,k] (w[n,k] - zeros[n,k]) factors[k] of constants, null
  /// for 1 or 0. With them a product takes the mean and the shift of a norm out of its sums; see
  /// fold-norms.
  plan::ArgT rowSums(const Value *w, const Value *factors = nullptr, const Value *scales = nullptr,
                     const Value *zeros = nullptr);

  /// The address of `what`, which `make` makes of constants, the same for the same ones.
  plan::ArgT derived(llvm::StringRef what, llvm::ArrayRef<const Value *> of,
                     llvm::function_ref<Tensor()> make);

  /// Allocates the statistics that the kernel which computes `v` leaves of each of its `rows` rows:
  /// f32x2[parts, rows].
  plan::ArgT addStatistics(Value *v, const Dim &rows, const RowStatistics &statistics);
  /// Where they are.
  plan::ArgT statistics(Value *v) const;

  /// A step that computes `v` also leaves the largest elements of parts of its rows, as argmaxParts
  /// reads them.
  struct LargestParts {
    plan::ArgT where;
    int parts;
  };
  void setLargest(const Value *v, LargestParts parts) { largest_[v] = std::move(parts); }
  const LargestParts *largestOf(const Value *v) const {
    auto it = largest_.find(v);
    return it == largest_.end() ? nullptr : &it->second;
  }
  /// Of a function whose rows may be drawn by temperature, `rows` of them: choices() becomes a port
  /// of it.
  void drawRows(const Dim &rows) { drawnRows_ = rows; }
  /// How each row of logits is chosen from: SampleRow[rows], or null, for all are greedy. Who makes
  /// the choice or a part of it asks, and heeds it.
  plan::ArgT choices();
  /// `v` is stored where `of` is.
  void alias(Value *v, Value *of);
  static plan::ArgT null();
  /// Where the ranks that run the function meet. `bytes`: that the step sends to each rank as
  /// partial sums (templates/exchange/sums.cuh).
  static plan::ArgT exchange(int64_t bytes = 0);
  /// The same for a step that is there for ranks which share a device alone; `orCut`: or which have
  /// a stage of the layers, that may end with it.
  static plan::ArgT exchangeOfShared(bool orCut = false);
  static plan::ArgT f32(float value);
  plan::ArgT i32(const Dim &d);
  /// 1 for every other step: kernels that follow each other take their tiles in opposite orders, so
  /// that what one has written last, which L2 still holds, is read first.
  plan::ArgT backwards() { return i32(Dim(int64_t(out_.steps.size() % 2))); }
  /// The f16 matrix [rows, columns] at a pointer as a tensor map with boxes of boxRows x 64; with
  /// `matrices` that many of them.
  plan::ArgT tensorMap(plan::ArgT pointer, const Dim &rows, int64_t columns, int boxRows,
                       const Dim *matrices = nullptr);
  /// Zero-initialised workspace of the function. Steps that name the same `key` share it, since
  /// they run one after the other and leave behind what they found (zeros where they need zeros);
  /// one that needs more than those before has its own, which later ones share.
  plan::ArgT sharedScratch(llvm::StringRef key, int64_t bytes);

  /// Memory for `count` elements from the next step on to the last that names it. Only the steps of
  /// one op name it.
  plan::ArgT temporary(llvm::StringRef name, plan::DType dtype, int64_t count);

  /// The KV state in the pages of @extend (ir/ops/PagedAttention.h) instead of places for
  /// sequences: the port of the state has its shape there, and behind the function's inputs come
  /// the pages of each sequence, tables i32[batch, columns].
  struct Pages {
    int64_t tokens; ///< of a page
    Dim layers;
    int64_t columns;
    Type kv;
    int input; ///< tables
  };
  /// To be called before ports are added.
  void usePages(const Function &extend);
  /// What a call says of prefixes that its sequences, `of`, share (runtime/plan/PrefixTiles.h), for
  /// kernels whose tiles have that many of them at most: ports behind the others, from the first
  /// call of this on. None: another kernel's tiles have other numbers.
  struct Prefixes {
    plan::ArgT sequences, tiles;
    Dim count; ///< of tiles
    int members;
  };
  std::optional<Prefixes> prefixes(const Dim &of, int members);
  /// Null: ops have the state as their types say.
  const Pages *pages() const { return pages_ ? &*pages_ : nullptr; }
  plan::ArgT tables() const;

  /// Whether a step may change the storage of `v`: it is of this function, or the KV state.
  bool mayOverwrite(Value *v) const;

  plan::ExprT expr(const Dim &d);
  /// The same for what cannot be negative, such as a size: 0 where the symbols' bounds alone would
  /// allow less.
  plan::ExprT sizeExpr(const Dim &d);
  /// The largest value of `d` under the bounds; the largest number there is when that does not fit.
  int64_t maximum(const Dim &d) const { return rangeOf(d, bounds_, limits_).hi; }

  /// Appends a launch; arguments are given by the kernel's parameter names.
  void launch(llvm::ArrayRef<llvm::StringRef> nodes, llvm::StringRef what, KernelSource kernel,
              const Args &args, const std::array<plan::ExprT, 3> &grid, const Dim &bytes,
              const Dim &flops);
  llvm::Error launch(Op &op, llvm::StringRef what, KernelSource kernel, const Args &args,
                     const std::array<plan::ExprT, 3> &grid, const Dim &bytes, const Dim &flops) {
    launch(op.locations, what, std::move(kernel), args, grid, bytes, flops);
    return llvm::Error::success();
  }
  /// Of the next launch.
  void setChoice(Choice choice) { choice_ = std::move(choice); }
  /// Says what each token of each sequence that the KV state holds adds to the last launch's costs.
  void addPastCosts(const Dim &bytes, const Dim &flops);
  /// The function's arguments become ports and places, its results ports.
  void addInputs(const Function &f);
  /// The number of a further input, of i32.
  int addInput(llvm::StringRef name, llvm::ArrayRef<Dim> shape);
  void addOutputs(const Function &f);

private:
  struct Place {
    plan::ArgKind kind;
    int index;
  };
  Value *resolve(Value *v) const;
  int addBuffer(std::string name, plan::DType dtype, llvm::ArrayRef<Dim> shape);
  /// What a plan's reader can tell of an expression: it takes symbols independently of each other.
  rt::Range readersRange(const plan::ExprT &e) const;
  /// The joint limits of symbols that shapes of arguments tell.
  void addLimits();
  llvm::Error copyOutputs(const Function &f);
  void planMemory();

  PlanPool &pool_;
  plan::FunctionT &out_;
  SymbolBounds bounds_;
  DimBounds limits_; // of the function
  llvm::DenseMap<Value *, Place> places_;
  llvm::DenseMap<Value *, Value *> aliases_;
  llvm::DenseMap<Value *, int> statistics_;          ///< buffers
  llvm::StringMap<std::pair<int, int64_t>> scratch_; // key -> offset, bytes
  llvm::DenseMap<const Value *, LargestParts> largest_;
  std::optional<Dim> drawnRows_;
  int choicesInput_ = -1;
  std::map<int, bool> outputs_;  ///< those that steps name, and whether one of them needs it
  std::optional<Choice> choice_; ///< of the next launch
  std::optional<Pages> pages_;
  std::optional<Prefixes> prefixes_;
};

} // namespace gpt2c
