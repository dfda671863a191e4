#include "runtime/plan/Expr.h"
#include "runtime/plan/FunctionNames.h"
#include "runtime/plan/KvLayout.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/PlanVerify.h"
#include "runtime/plan/WeightPart.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <vector>

namespace gpt2c::rt {
namespace {

constexpr int64_t kMaxGrid[3] = {INT32_MAX, 65535, 65535};
constexpr uint32_t kMaxBlock[3] = {1024, 1024, 64};
constexpr uint64_t kMaxThreads = 1024;
constexpr size_t kStageWords = 16; // of a stage's record
constexpr unsigned kMostClusters = 1024, kMostClusterBlocks = 16;
constexpr uint32_t kMaxSharedBytes =
    256 << 10; // more than any device has; the driver knows the exact limit
constexpr uint64_t kBufferAlignment = 16; // the widest vector load

using Shape = std::vector<std::unique_ptr<plan::ExprT>>;

class FunctionVerifier {
public:
  FunctionVerifier(const plan::PlanT &meta, const plan::FunctionT &function, Issues &issues)
      : meta_(meta), function_(function), issues_(issues) {}

  void run() {
    if (!verifySymbols())
      return; // nothing can be said about expressions without their symbols
    for (size_t i = 0; i < function_.limits.size() && !issues_.full(); ++i)
      verifyLimit(*function_.limits[i], "limit " + std::to_string(i));
    for (const auto &port : function_.inputs)
      verifyPort(*port, "input");
    for (const auto &port : function_.outputs)
      verifyPort(*port, "output");
    for (size_t i = 0; i < function_.buffers.size() && !issues_.full(); ++i)
      verifyBuffer(i);
    for (size_t i = 0; i < function_.steps.size() && !issues_.full(); ++i)
      verifyStep(i);
  }

private:
  void fail(const std::string &where, const std::string &what) {
    issues_.corrupt("function " + inQuotes(function_.name) + ", " + where + ": " + what);
  }

  bool verifySymbols() {
    std::set<std::string> names;
    bool good = true;
    for (const auto &symbol : function_.symbols) {
      if (symbol->name.empty() || !names.insert(symbol->name).second) {
        fail("symbol " + inQuotes(symbol->name), "the name is empty or used twice");
        good = false;
      }
      if (symbol->min < 0 || symbol->max < symbol->min) {
        fail("symbol " + inQuotes(symbol->name), "invalid bounds [" + std::to_string(symbol->min) +
                                                     ", " + std::to_string(symbol->max) + "]");
        good = false;
      }
      bounds_.push_back({symbol->min, symbol->max});
    }
    return good;
  }

  /// The bounds of an expression that must lie within [lo, hi]; reports and returns nothing
  /// otherwise.
  std::optional<Range> checkExpr(const plan::ExprT &expr, int64_t lo, int64_t hi,
                                 const std::string &where, const std::string &what) {
    Result<Range> range = exprRange(expr, bounds_);
    if (!range) {
      fail(where, what + ": " + range.status().message());
      return std::nullopt;
    }
    if (range->lo < lo || range->hi > hi) {
      fail(where, what + " may reach [" + std::to_string(range->lo) + ", " +
                      std::to_string(range->hi) + "], allowed is [" + std::to_string(lo) + ", " +
                      std::to_string(hi) + "]");
      return std::nullopt;
    }
    return *range;
  }

  /// Most bytes a tensor of this shape can have; reports and returns nothing when that cannot be
  /// said.
  std::optional<uint64_t> largestBytes(plan::DType dtype, const Shape &shape,
                                       const std::string &where) {
    uint64_t bytes = dtypeBytes(dtype);
    if (bytes == 0) {
      fail(where, "unknown dtype " + std::to_string(int(dtype)));
      return std::nullopt;
    }
    for (const auto &dim : shape) {
      std::optional<Range> range = checkExpr(*dim, 0, INT64_MAX, where, "dimension");
      if (!range)
        return std::nullopt;
      if (__builtin_mul_overflow(bytes, uint64_t(range->hi), &bytes)) {
        fail(where, "shape exceeds 64 bits");
        return std::nullopt;
      }
    }
    return bytes;
  }

  void verifyLimit(const plan::SumLimitT &limit, const std::string &where) {
    if (limit.sum)
      checkExpr(*limit.sum, 0, INT64_MAX, where, "sum");
    else
      fail(where, "no sum");
  }

  void verifyPort(const plan::PortT &port, const char *direction) {
    std::string where = std::string(direction) + " " + inQuotes(port.name);
    if (dtypeBytes(port.exported_dtype) == 0)
      fail(where, "unknown exported dtype " + std::to_string(int(port.exported_dtype)));
    if (port.part > plan::KvPart::MAX)
      fail(where, "unknown part " + std::to_string(int(port.part)));
    largestBytes(port.dtype, port.shape, where);
    verifyRole(port, where);
  }

  void verifyRole(const plan::PortT &port, const std::string &where) {
    size_t rank = port.shape.size();
    auto need = [&](plan::DType dtype, size_t lowRank, size_t highRank) {
      if (port.dtype != dtype || rank < lowRank || rank > highRank)
        fail(where, std::string("role ") + plan::EnumNameRole(port.role) + " has dtype " +
                        dtypeName(port.dtype) + " and rank " + std::to_string(rank));
    };
    switch (port.role) {
    case plan::Role::Plain:
      return;
    case plan::Role::Ids:
    case plan::Role::KeyMask:
    case plan::Role::PositionIds:
      return need(plan::DType::I32, 2, 2);
    case plan::Role::Past:
    case plan::Role::Length:
    case plan::Role::NextToken:
      return need(plan::DType::I32, 1, 1);
    case plan::Role::Logits:
      return need(plan::DType::F32, 2, 3);
    case plan::Role::KvState:
      if (!meta_.kv)
        return fail(where, "role KvState in a plan without a KV plan");
      if (port.dtype != meta_.kv->dtype)
        fail(where, "dtype differs from the KV plan's");
      return;
    case plan::Role::PastTensor:
    case plan::Role::PresentTensor: {
      size_t wanted = port.part == plan::KvPart::Both ? 5 : 4;
      if (rank != wanted)
        fail(where, "a past or present tensor has rank " + std::to_string(rank) + ", not " +
                        std::to_string(wanted));
      if (port.layer < 0 || (meta_.kv && port.layer >= meta_.kv->layers))
        fail(where, "layer " + std::to_string(port.layer) + " does not exist");
      return;
    }
    }
    fail(where, "unknown role " + std::to_string(int(port.role)));
  }

  void verifyBuffer(size_t index) {
    const plan::BufferT &buffer = *function_.buffers[index];
    std::string where = "buffer " + std::to_string(index) + " (" + inQuotes(buffer.name) + ")";
    if (buffer.offset % kBufferAlignment != 0)
      fail(where, "offset is not a multiple of " + std::to_string(kBufferAlignment));
    if (buffer.offset > function_.arena_bytes ||
        buffer.bytes > function_.arena_bytes - buffer.offset)
      fail(where, "lies outside the arena");
    std::optional<uint64_t> needed = largestBytes(buffer.dtype, buffer.shape, where);
    if (needed && *needed > buffer.bytes)
      fail(where, "its largest shape needs " + std::to_string(*needed) + " bytes of " +
                      std::to_string(buffer.bytes));
    int64_t steps = int64_t(function_.steps.size());
    if (buffer.first_step < 0 || buffer.last_step < buffer.first_step ||
        buffer.last_step >= steps || buffer.value < -1 || buffer.whole_step < 0 ||
        buffer.whole_step >= steps)
      fail(where, "lives outside the function's steps");
  }

  /// A stage is launched with its neighbours, by the first of them.
  void verifyStage(size_t index, const std::string &where) {
    const plan::StepT &step = *function_.steps[index];
    if (step.args.size() > kStageWords)
      fail(where, std::to_string(step.args.size()) + " arguments of a stage");
    if (std::ranges::any_of(step.args, [](const auto &arg) { return arg->map != nullptr; }))
      fail(where, "a tensor map as an argument of a stage");
    if (step.clusters > kMostClusters || step.spare_clusters > kMostClusters ||
        step.cluster_blocks > kMostClusterBlocks ||
        (step.clusters == 0) != (step.cluster_blocks == 0) ||
        (step.clusters == 0 && step.spare_clusters != 0))
      fail(where, std::to_string(step.clusters) + " clusters and " +
                      std::to_string(step.spare_clusters) + " spare ones of " +
                      std::to_string(step.cluster_blocks) + " blocks");
    if (index == 0 || function_.steps[index - 1]->mode != plan::LaunchMode::Stage)
      return;
    const plan::StepT &before = *function_.steps[index - 1];
    if (before.kernel != step.kernel || before.block != step.block ||
        before.clusters != step.clusters || before.spare_clusters != step.spare_clusters ||
        before.cluster_blocks != step.cluster_blocks || before.shared_bytes != step.shared_bytes)
      fail(where, "kernel, block, clusters or shared memory differ from the stage before");
  }

  void verifyStep(size_t index) {
    const plan::StepT &step = *function_.steps[index];
    std::string where = "step " + std::to_string(index) + " (" + inQuotes(step.op) + ")";
    if (step.kernel < 0 || size_t(step.kernel) >= meta_.kernels.size())
      fail(where, "unknown kernel " + std::to_string(step.kernel));
    if (step.mode > plan::LaunchMode::MAX)
      fail(where, "unknown launch mode " + std::to_string(int(step.mode)));
    if (step.mode == plan::LaunchMode::Stage)
      verifyStage(index, where);
    if (step.grid.size() != 3 || step.block.size() != 3) {
      fail(where, "grid and block need three sizes each");
    } else {
      uint64_t threads = 1;
      for (int i = 0; i < 3; ++i) {
        checkExpr(*step.grid[i], 0, kMaxGrid[i], where, "grid size");
        if (step.block[i] < 1 || step.block[i] > kMaxBlock[i])
          fail(where, "block size " + std::to_string(step.block[i]));
        threads *= step.block[i];
      }
      if (threads > kMaxThreads)
        fail(where, std::to_string(threads) + " threads in a block");
    }
    if (step.shared_bytes > kMaxSharedBytes)
      fail(where, std::to_string(step.shared_bytes) + " bytes of shared memory");
    for (const auto &[expr, what] :
         {std::pair(&step.bytes, "bytes"), std::pair(&step.flops, "flops"),
          std::pair(&step.past_bytes, "bytes for past tokens"),
          std::pair(&step.past_flops, "flops for past tokens")})
      if (*expr)
        checkExpr(**expr, 0, INT64_MAX, where, what);
    for (size_t i = 0; i < step.args.size() && !issues_.full(); ++i)
      verifyArg(*step.args[i], where + ", argument " + std::to_string(i));
  }

  /// A pointer argument: `size` bytes of `count` objects of its kind, plus the offset expression.
  template <typename SizeOf>
  void verifyPointer(const plan::ArgT &arg, size_t count, SizeOf sizeOf, const std::string &where) {
    if (arg.index < 0 || size_t(arg.index) >= count)
      return fail(where, std::string("unknown ") + plan::EnumNameArgKind(arg.kind) + " " +
                             std::to_string(arg.index));
    uint64_t size = sizeOf(size_t(arg.index));
    if (arg.map)
      verifyMap(arg, size, where);
    if (!arg.expr)
      return;
    checkExpr(*arg.expr, 0, int64_t(std::min<uint64_t>(size ? size - 1 : 0, INT64_MAX)), where,
              "offset");
  }

  /// A map of pages is checked for as few as there may be, too: it has to follow their number.
  void verifyPortPointer(const plan::ArgT &arg,
                         const std::vector<std::unique_ptr<plan::PortT>> &ports,
                         const std::string &where) {
    auto verify = [&] {
      verifyPointer(arg, ports.size(), [&](size_t i) { return portBytes(*ports[i]); }, where);
    };
    verify();
    if (!arg.map || arg.index < 0 || size_t(arg.index) >= ports.size() ||
        !isPaged(*ports[arg.index]))
      return;
    std::vector<Range> fewest = bounds_;
    for (Range &range : fewest)
      range.hi = range.lo;
    std::swap(bounds_, fewest);
    verify();
    std::swap(bounds_, fewest);
  }

  /// A tensor map over an object of `size` bytes: cuTensorMapEncodeTiled's conditions, and no row
  /// outside.
  void verifyMap(const plan::ArgT &arg, uint64_t size, const std::string &where) {
    const plan::TensorMapT &map = *arg.map;
    if (arg.expr)
      return fail(where, "a tensor map with an offset");
    if (map.columns <= 0 || map.columns % 8 != 0 || map.columns > INT32_MAX)
      return fail(where, "a tensor map of " + std::to_string(map.columns) + " columns");
    if (map.box_rows < 1 || map.box_rows > 256)
      return fail(where, "a tensor map with boxes of " + std::to_string(map.box_rows) + " rows");
    if (!map.rows)
      return fail(where, "a tensor map without rows");
    const int64_t most = int64_t(size / 2 / uint64_t(map.columns));
    checkExpr(*map.rows, 0, most, where, "rows of a tensor map");
    if (!map.matrices)
      return;
    Result<Range> rows = exprRange(*map.rows, bounds_);
    checkExpr(*map.matrices, 0, rows && rows->hi > 0 ? most / rows->hi : most, where,
              "matrices of a tensor map");
  }

  /// A KV state in pages, of which there are as many as its shape says.
  bool isPaged(const plan::PortT &port) const {
    return port.role == plan::Role::KvState && function_.name == functions::extend;
  }
  uint64_t portBytes(const plan::PortT &port) {
    if (port.role == plan::Role::KvState && !isPaged(port))
      return meta_.kv ? meta_.kv->bytes : 0;
    uint64_t bytes = dtypeBytes(port.dtype);
    for (const auto &dim : port.shape) {
      Result<Range> range = exprRange(*dim, bounds_);
      if (!range || range->hi < 0 || __builtin_mul_overflow(bytes, uint64_t(range->hi), &bytes))
        return 0; // already reported at the port
    }
    return bytes;
  }

  uint64_t partBytes(size_t index, const std::string &where) {
    const plan::WeightPartT &part = *meta_.weight_parts[index];
    if (part.ranks != ranksOf(function_))
      fail(where, "a part for " + std::to_string(part.ranks) + " ranks");
    if (part.weight < 0 || size_t(part.weight) >= meta_.weights.size())
      return 0; // reported with the parts
    const plan::WeightT &weight = *meta_.weights[size_t(part.weight)];
    const auto sizes = sizesOf(part, weight.dtype, weight.shape);
    return sizes ? sizes->bytes() : 0;
  }

  void verifyArg(const plan::ArgT &arg, const std::string &where) {
    switch (arg.kind) {
    case plan::ArgKind::Buffer:
      return verifyPointer(
          arg, function_.buffers.size(), [&](size_t i) { return function_.buffers[i]->bytes; },
          where);
    case plan::ArgKind::Weight:
      return verifyPointer(
          arg, meta_.weights.size(), [&](size_t i) { return meta_.weights[i]->bytes; }, where);
    case plan::ArgKind::WeightPart:
      if (ranksOf(function_) < 2)
        return fail(where, "a part of a weight in a function for one alone");
      return verifyPointer(
          arg, meta_.weight_parts.size(), [&](size_t i) { return partBytes(i, where); }, where);
    case plan::ArgKind::Exchange:
      if (ranksOf(function_) < 2)
        fail(where, "an exchange in a function for one alone");
      if (arg.index < -2)
        fail(where, "an exchange of " + std::to_string(arg.index) + " bytes");
      return;
    case plan::ArgKind::Input:
      return verifyPortPointer(arg, function_.inputs, where);
    case plan::ArgKind::Output:
      return verifyPortPointer(arg, function_.outputs, where);
    case plan::ArgKind::I32:
    case plan::ArgKind::I64:
      if (!arg.expr)
        return fail(where, "an integer without an expression");
      checkExpr(*arg.expr, arg.kind == plan::ArgKind::I32 ? INT32_MIN : INT64_MIN,
                arg.kind == plan::ArgKind::I32 ? INT32_MAX : INT64_MAX, where, "value");
      if (arg.index < 0 || arg.index > int(LayerArg::Ahead))
        fail(where, "an integer that stands for nothing");
      return;
    case plan::ArgKind::Scratch:
      if (arg.index < 0 || uint64_t(arg.index) >= function_.scratch_bytes || arg.index % 4 != 0)
        fail(where, "scratch byte " + std::to_string(arg.index) + " of " +
                        std::to_string(function_.scratch_bytes));
      return;
    case plan::ArgKind::F32:
    case plan::ArgKind::Null:
      return;
    }
    fail(where, "unknown kind " + std::to_string(int(arg.kind)));
  }

  const plan::PlanT &meta_;
  const plan::FunctionT &function_;
  Issues &issues_;
  std::vector<Range> bounds_;
};

} // namespace

void verifyFunction(const plan::PlanT &meta, const plan::FunctionT &function, Issues &issues) {
  FunctionVerifier(meta, function, issues).run();
}

} // namespace gpt2c::rt
