#include "templates/exchange/Exchange.h"

#include "codegen/KernelWriter.h"
#include "ir/Error.h"
#include "runtime/cuda/ExchangeRecord.h"
#include "templates/OpKernels.h"
#include "templates/generic/GenericLowerings.h"

namespace gpt2c {

namespace {
constexpr unsigned threads = 512;
constexpr int64_t items = 4, mostBlocks = rt::kExchangeBlocks;
static_assert(mostBlocks * threads * items == rt::kExchangeWords);
} // namespace

static void addExchange(KernelWriter &w, int64_t n, int64_t ranks) {
  w.constant("N", n);
  w.constant("Ranks", ranks);
  w.check(llvm::Twine("sizeof(tile::Exchange) == ") + llvm::Twine(sizeof(rt::ExchangeRecord)));
  w.check(llvm::Twine("tile::exchangeBlocks == ") + llvm::Twine(mostBlocks));
  w.check(llvm::Twine("tile::exchangeThreads == ") + llvm::Twine(threads));
  w.value("tile::Exchange *", "exchange");
}

static void addTypes(KernelWriter &w, const AllReduceConfig &c) {
  w.type("X", c.x);
  w.type("Y", c.y);
  w.type("B", c.bias.value_or(c.y));
  w.type("R", c.residual.value_or(c.y));
  w.flag("Bias", c.bias.has_value());
  w.flag("Residual", c.residual.has_value());
  w.flag("Statistics", c.statistics);
  addExchange(w, c.n, c.ranks);
}
static void addEnd(KernelWriter &w, const AllReduceConfig &c) {
  w.in("bias", c.bias.value_or(c.y), c.bias.has_value());
  w.in("residual", c.residual.value_or(c.y), c.residual.has_value());
  w.out("y", c.y);
  w.value("float2 *", "statistics", c.statistics);
  w.i32("rows");
}

KernelSource allReduce(llvm::StringRef name, const AllReduceConfig &c) {
  KernelWriter w(name, "templates/exchange/all_reduce.cuh", "tile::allReduce");
  addTypes(w, c);
  w.constant("Items", items);
  w.check(llvm::Twine("tile::Tiles<2>::words == ") + llvm::Twine(rt::kTileWords));
  w.check(llvm::Twine("tile::Tiles<2>::slots == ") + llvm::Twine(rt::kTileSlots));
  w.in("x", c.x);
  addEnd(w, c);
  return w.finish(threads);
}

KernelSource allReduceSent(llvm::StringRef name, const AllReduceSentConfig &c) {
  KernelWriter w(name, "templates/exchange/all_reduce_sent.cuh", "tile::allReduceSent");
  addTypes(w, c);
  w.check(llvm::Twine("tile::SentSums::numbersBytes == ") + llvm::Twine(rt::kSumNumbersBytes));
  addEnd(w, c);
  return w.finish(threads, 0, 2);
}

KernelSource allReduceReceived(llvm::StringRef name, const AllReduceReceivedConfig &c) {
  KernelWriter w(name, "templates/exchange/all_reduce_received.cuh", "tile::allReduceReceived");
  addTypes(w, c);
  addEnd(w, c);
  return w.finish(threads);
}

KernelSource allGather(llvm::StringRef name, const AllGatherConfig &c) {
  const llvm::StringRef word = c.wide ? "unsigned" : "unsigned short";
  KernelWriter w(name, "templates/exchange/all_gather.cuh", "tile::allGather");
  w.type("X", word);
  addExchange(w, c.n, c.ranks);
  w.constant("Items", items);
  w.value(("const " + word + " *").str(), "x");
  w.value((word + " *").str(), "y");
  w.i32("rows");
  return w.finish(threads);
}

Grid exchangeGrid(const plan::ExprT &count) {
  return blocks(minExpr(ceilDivExpr(count, threads), rt::constantExpr(mostBlocks)));
}

Grid sentGrid(const plan::ExprT &count, int64_t processors) {
  return blocks(
      minExpr(ceilDivExpr(count, int64_t(threads) * 8), rt::constantExpr(2 * processors)));
}

/// Why kernels do not exchange among so many; empty: they do.
static std::string tooManyRanks(int64_t ranks) {
  return ranks <= rt::kMostExchangingRanks
             ? ""
             : "GPUs exchange among " + std::to_string(rt::kMostExchangingRanks) + " ranks at most";
}

llvm::Error emitAllReduce(StepBuilder &b, const AllReduceGroup &group) {
  Op &op = *group.reduce;
  Value *x = op.operand(0), *y = group.last->result();
  AllReduceConfig c;
  c.ranks = op.intAttr("ranks");
  if (const std::string why = tooManyRanks(c.ranks); !why.empty())
    return noKernel(op, why);
  for (const Op *part : {group.reduce, group.last})
    if (const std::string why = refusal(OpKernel::AllReduce, *part); !why.empty())
      return noKernel(op, why);
  if (x->type.rank() == 0 || !x->type.shape.back().isConstant())
    return noKernel(op, "the number of its columns is not constant");
  c.y = scalarOf(y);
  const bool stored = !group.sent && !group.received; // by the product
  c.x = stored ? scalarOf(x) : c.y;
  c.n = lastDim(x);
  if (group.bias)
    c.bias = scalarOf(group.bias);
  if (group.residual)
    c.residual = scalarOf(group.residual);
  ArgList list(b);
  list.set("exchange", group.received ? StepBuilder::exchangeOfShared() : StepBuilder::exchange());
  if (stored)
    list.in("x", x);
  if (group.bias)
    list.in("bias", group.bias);
  if (group.residual)
    list.in("residual", group.residual);
  c.statistics = group.statistics.parts > 0;
  static_assert(AllReduceGroup::statisticsWidth == 32);
  if (c.statistics)
    list.set("statistics",
             group.received ? b.statistics(y) : b.addStatistics(y, leading(y), group.statistics));
  group.received ? list.in("y", y) : list.out("y", y); // it lies there already
  auto args = list.i32("rows", leading(x)).take();
  if (!args)
    return args.takeError();
  const Dim count = elements(x);
  const std::string name = b.pool().nextKernelName("all_reduce");
  b.launch(group.last->locations, group.what,
           group.sent       ? allReduceSent(name, {c})
           : group.received ? allReduceReceived(name, {c})
                            : allReduce(name, c),
           *args,
           group.sent       ? sentGrid(b.expr(count), group.processors)
           : group.received ? exchangeGrid(ceilDivExpr(b.expr(count), 2))
                            : exchangeGrid(b.expr(count)),
           (stored ? bytesOf(x) : bytesOf(y) * Dim(c.ranks)) + bytesOf(y) +
               (group.residual ? bytesOf(group.residual) : Dim(0)),
           count * Dim(c.ranks - 1));
  return llvm::Error::success();
}

llvm::Error lowerAllGather(StepBuilder &b, Op &op) {
  Value *x = op.operand(0), *y = op.result();
  const int64_t given = op.intAttr("axis"), axis = given < 0 ? given + x->type.rank() : given;
  AllGatherConfig c;
  c.ranks = op.intAttr("ranks");
  std::string why = tooManyRanks(c.ranks);
  if (why.empty())
    why = refusal(OpKernel::AllGather, op);
  if (!why.empty())
    return noKernel(op, why);
  const llvm::ArrayRef<Dim> shape = x->type.shape;
  const auto columns = elementCount(shape.drop_front(axis)).constant();
  if (!columns)
    return noKernel(op, "the number of its columns is not constant");
  c.n = *columns;
  c.wide = byteSize(x->type.dtype) == 4;
  const Dim rows = elementCount(shape.take_front(axis));
  auto args = ArgList(b)
                  .set("exchange", StepBuilder::exchange())
                  .in("x", x)
                  .out("y", y)
                  .i32("rows", rows)
                  .take();
  if (!args)
    return args.takeError();
  return b.launch(op, "all_gather", allGather(b.pool().nextKernelName("all_gather"), c), *args,
                  exchangeGrid(b.expr(elements(x))), bytesOf(x) + bytesOf(y), 0);
}

} // namespace gpt2c
