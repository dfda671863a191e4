#include "ir/Error.h"
#include "runtime/plan/Expr.h"
#include "runtime/plan/FunctionNames.h"
#include "templates/decode_step/common/DecodeKernels.h"
#include "templates/decode_step/common/PersistentBuilder.h"
#include "templates/decode_step/common/PersistentConfig.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

using namespace persistent;

static bool isLinear(const Op &op) {
  return op.is(OpCode::Linear) || op.is(OpCode::QuantizedLinear);
}
static plan::ArgT place(plan::ArgKind kind, int64_t index) {
  plan::ArgT a;
  a.kind = kind;
  a.index = int(index);
  return a;
}

llvm::Error PersistentBuilder::run() {
  addPorts();
  if (auto shape = readDecoder(f_))
    shape_ = std::move(*shape);
  else
    llvm::consumeError(shape.takeError());
  for (auto &op : f_.ops())
    if (op->is(OpCode::AllGather))
      members_ = op->intAttr("ranks");
  for (auto &op : f_.ops())
    if (llvm::Error e = lower(*op))
      return e;
  if (!embed_ || !attention_ || linears_.empty() || nextOutput_ < 0)
    return unsupported("it is no embedding, layers with attention, and a choice");
  StepWish wish = wish_;
  wish.packsLast &= linears_.back().packed.has_value();
  wish.packs &= llvm::all_of(linears_, [](const Product &l) { return l.form.Logits || l.packed; });
  problem_ = decodeProblem(f_, shape_ ? &*shape_ : nullptr, rows_, paged_, b_.pool().target, wish);
  const DecodeKernel *taken = leaderOf(decodeKernels(), problem_, problem_);
  if (!taken)
    return refused(problem_);
  DecodeLaunch launch{*this};
  return taken->emit(launch, taken->candidates(problem_).front().config);
}

llvm::Error PersistentBuilder::refused(const DecodeProblem &p) const {
  const std::string slower = decodeSharesKernel().slower(p),
                    why = slower.empty() ? decodeSharesKernel().refusal(p) : slower;
  if (paged_)
    return unsupported("its clusters are not those that take a state in pages: " + why);
  if (!needsShares_.empty())
    return unsupported(needsShares_ + " only in shares of thread block clusters, and " + why);
  if (rows_ > 2 * clusterBlocks)
    return unsupported("it takes no more than " + llvm::Twine(2 * clusterBlocks) + " sequences");
  return unsupported(llvm::Twine(rows_) + " sequences have one in thread block clusters only");
}

llvm::Error PersistentBuilder::emitStages() {
  if (llvm::Error e = chooseSizes())
    return e;
  addStep();
  emitKernel();
  return llvm::Error::success();
}

llvm::Error PersistentBuilder::unsupported(const llvm::Twine &why) const {
  return makeError(ExitCode::Unsupported, "@decode has no persistent kernel: " + why);
}
llvm::Error PersistentBuilder::unsupported(const Op &op, const llvm::Twine &why) const {
  return unsupported(op.describe() + ": " + why);
}

//===-- ports and values --------------------------------------------------------------------===//

void PersistentBuilder::addPorts() {
  out_.name = paged_ ? rt::functions::steps : rt::functions::generate;
  if (paged_) {
    b_.usePages(*paged_);
    b_.drawRows(Dim::symbol("batch"));
  }
  b_.addInputs(f_);
  if (!paged_) {
    tokensInput_ = b_.addInput("tokens", {Dim::symbol("capacity"), Dim::symbol("batch")});
    stepInput_ = b_.addInput("step", {Dim(1)});
  }
  b_.addOutputs(f_);
}

/// The number of `v` among what @decode returns under `name`; -1 when it is not.
int PersistentBuilder::outputOf(const Value *v, llvm::StringRef name) const {
  for (auto [i, r] : llvm::enumerate(f_.returned()))
    if (source(r) == v && f_.resultNames[i] == name)
      return int(i);
  return -1;
}

Value *PersistentBuilder::source(Value *v) { return sourceOf(v); }

int64_t PersistentBuilder::newChannel(int64_t bytes) {
  int64_t at = channelBytes_;
  channelBytes_ += (bytes + 255) / 256 * 256;
  return at;
}
/// A channel for `copies` rows of each sequence's v.
int64_t PersistentBuilder::channelFor(Value *v, int64_t copies) {
  return channels_[v] = newChannel(rows_ * widthOf(v) * byteSize(v->type.dtype) * copies);
}
/// The channel that holds `v`; nothing when it is no value of a stage, or in parts.
std::optional<int64_t> PersistentBuilder::channelOf(Value *v) const {
  auto it = channels_.find(source(v));
  if (it == channels_.end() || maxima_.count(source(v)))
    return std::nullopt;
  return it->second;
}

//===-- stages ------------------------------------------------------------------------------===//

HostWords::Pair PersistentBuilder::pair(int64_t low, int64_t high) {
  assert(low >> 16 == 0 && high >> 15 == 0);
  return words_.pair(b_.i32(low | high << 16));
}
/// A stage without weights.
PersistentBuilder::Stage PersistentBuilder::stage(int kind, int64_t units) {
  return {.kind = pair(kind, 0),
          .units = words_.units(b_.i32(units)),
          .weights = words_.null(),
          .rows = integer(0),
          .rowBytes = integer(0),
          .chunk = pair(0, 0)};
}

void PersistentBuilder::addStage(llvm::StringRef what, int64_t units, const StageRecord &record,
                                 llvm::ArrayRef<llvm::StringRef> nodes, const Dim &bytes,
                                 const Dim &flops) {
  auto step = std::make_unique<plan::StepT>();
  step->op = what.str();
  step->mode = plan::LaunchMode::Stage;
  for (int64_t size : {units, int64_t(1), int64_t(1)})
    step->grid.push_back(std::make_unique<plan::ExprT>(rt::constantExpr(size)));
  for (llvm::StringRef n : nodes)
    step->nodes.push_back(n.str());
  step->bytes = std::make_unique<plan::ExprT>(b_.sizeExpr(bytes));
  step->flops = std::make_unique<plan::ExprT>(b_.sizeExpr(flops));
  costs_.emplace_back(bytes, flops);
  out_.steps.push_back(std::move(step));
  records_.push_back(record);
}
/// The kernel of all stages, once its sizes and records are known.
void PersistentBuilder::setKernel(KernelSource kernel) {
  kernel.threads = threads_;
  kernel.sharedBytes = shared_;
  const int index = b_.pool().kernel(std::move(kernel));
  for (auto [step, record] : llvm::zip_equal(out_.steps, records_)) {
    step->args = words_.of(record);
    step->kernel = index;
    step->block = {unsigned(threads_), 1, 1};
    step->shared_bytes = shared_;
    step->clusters = clusters_;
    step->cluster_blocks = clusters_ ? clusterSize_ : 0;
    step->spare_clusters = spareClusters_;
  }
}
void PersistentBuilder::addStage(llvm::StringRef what, int64_t units, const StageRecord &record,
                                 Op &op) {
  Cost cost = op.info().cost ? op.info().cost(op) : Cost{0, 0};
  addStage(what, units, record, op.locations, cost.bytes, cost.flops);
}

llvm::Error PersistentBuilder::lower(Op &op) {
  switch (op.code()) {
  case OpCode::Constant:
  case OpCode::Reshape:
  case OpCode::Return:
    return llvm::Error::success();
  case OpCode::Cast:
    if (outputOf(source(op.result()), "logits") < 0 || op.result()->type.dtype != DType::F32)
      return unsupported(op, "there is no stage for it");
    return llvm::Error::success();
  case OpCode::Embed:
    return lowerEmbed(op);
  case OpCode::LayerNorm:
  case OpCode::RmsNorm:
    return checkNorm(op);
  case OpCode::Linear:
  case OpCode::QuantizedLinear:
    return lowerLinear(op);
  case OpCode::AppendAttention:
    return lowerAttention(op);
  case OpCode::Rope:
    return lowerRope(op);
  case OpCode::Gated:
    return lowerGated(op);
  case OpCode::ArgMax:
    return checkChoice(op);
  case OpCode::AllGather:
  case OpCode::Slice:
    if (!joinsColumnsOfRanks(op) || outputOf(source(op.result()), "logits") < 0)
      return unsupported(op, "there is no stage for it");
    return llvm::Error::success();
  default:
    return unsupported(op, "there is no stage for it");
  }
}

llvm::Error PersistentBuilder::lowerEmbed(Op &op) {
  using enum ops::Embed::Operand;
  Value *table = op.operand(Tokens), *positions = op.operand(Positions),
        *scales = op.operand(TokenScale), *y = op.result();
  DType t = y->type.dtype;
  bool stored = (t == DType::F16 || t == DType::BF16 || t == DType::F32) &&
                (scales ? isQuantised(table->type.dtype) : table->type.dtype == t);
  if (embed_ || !stored || (positions && positions->type.dtype != t) ||
      op.operand(Ids) != f_.argument("ids") || op.operand(PositionIds) ||
      (op.operand(Past) && op.operand(Past) != f_.argument("past")))
    return unsupported(op, "only ids and lengths as arguments, and tables of f32, f16, bf16 "
                           "or i8, have a stage");
  if (t == DType::BF16)
    needShares(op, "bf16 has stages");
  if (rows_ > 1 && t == DType::F32)
    return unsupported(op, "several sequences have no stages in fp32");
  embed_ = &op;
  type_ = t;
  int64_t d = widthOf(y), vector = 16 / byteSize(t);
  if (d % (vector * (scales ? widthOf(scales) : 1)) != 0)
    return unsupported(op,
                       "a row or a group of its scales is no multiple of " + llvm::Twine(vector));
  auto tableArg = b_.read(table), positionsArg = b_.read(positions), scalesArg = b_.read(scales);
  if (!tableArg)
    return tableArg.takeError();
  if (!positionsArg)
    return positionsArg.takeError();
  if (!scalesArg)
    return scalesArg.takeError();
  const int64_t units = rows_ * d / vector;
  EmbedRecord<HostWords> record = {.stage = stage(EmbedStage, units),
                                   .tokens = words_.address(std::move(*tableArg)),
                                   .positions = words_.address(std::move(*positionsArg)),
                                   .positionCount =
                                       integer(positions ? positions->type.shape[0] : Dim(0)),
                                   .y = words_.channel(channelFor(y)),
                                   .scales = words_.address(std::move(*scalesArg))};
  addStage("embed", units, record, op);
  return llvm::Error::success();
}

llvm::Error PersistentBuilder::lowerAttention(Op &op) {
  using enum ops::AppendAttention::Operand;
  Value *kv = op.operand(Kv), *qkv = op.operand(Qkv), *out = op.result(ops::AppendAttention::Y);
  auto from = channelOf(qkv);
  if (!from || op.operand(Past) != f_.argument("past") || op.operand(KeyMask) ||
      qkv->type.dtype != type_ || out->type.dtype != type_ || kv->type.dtype != type_)
    return unsupported(op, "only causal attention over a state in the type of its input has a "
                           "stage");
  if (op.intAttr("window"))
    return unsupported(op, "a window of keys has no stage");
  if (op.floatAttr("soft_cap") != 0)
    return unsupported(op, "a soft cap of scores has no stage");
  const int64_t keyHeads = kv->type.shape[3].constant().value_or(0);
  if (keyHeads == 0)
    return unsupported(op, "the number of its heads is not constant");
  if (keyHeads != op.intAttr("num_heads"))
    needShares(op, "heads that share keys and values have a stage");
  if (!llvm::all_of(out->uses(),
                    [](const Use &u) { return isLinear(*u.op) && u.operand == ops::Linear::X; }))
    return unsupported(op, "only linears can read what it computes");
  if (attention_ && attention_->operand(Kv)->type != kv->type)
    return unsupported(op, "its KV state differs from that of " + attention_->describe());
  const Op *turns = source(qkv)->def();
  turns = turns && turns->is(OpCode::Rope) ? turns : nullptr;
  if (bool(turns) != bool(rope_))
    return unsupported(op, "of some layers alone a rotary embedding has no stage");
  attention_ = &op;
  heads_ = op.intAttr("num_heads");
  keyHeads_ = keyHeads;
  headDim_ = widthOf(out) / heads_;
  if (turns &&
      (turns->intAttr("head_dim") != headDim_ || turns->intAttr("heads") != heads_ + keyHeads_))
    return unsupported(*turns, "only of all heads of q and k a rotary embedding has a stage");
  if (headDim_ % (16 / byteSize(type_)) != 0)
    return unsupported(op, "its heads are no multiple of 16 bytes");
  // The parts are rows of the linear's input, of which an instruction takes eight.
  for (splits_ = 1; 2 * splits_ * rows_ <= 8 && 2 * splits_ * heads_ * rows_ <= processors();)
    splits_ *= 2;
  auto kvArg = b_.read(f_.argument("kv"));
  if (!kvArg)
    return kvArg.takeError();
  HostWords::Channel maxima = words_.noChannel();
  int64_t at = channelFor(out, splits_);
  if (splits_ > 1) {
    maxima_[out] = newChannel(rows_ * heads_ * splits_ * 8);
    maxima = words_.channel(maxima_[out]);
  }
  const int64_t units = rows_ * heads_ * splits_;
  AttentionRecord<HostWords> record = {.stage = stage(AttentionStage, units),
                                       .qkv = words_.channel(*from),
                                       .kv = words_.address(std::move(*kvArg)),
                                       .out = words_.channel(at),
                                       .maxima = maxima,
                                       .layer = integer(op.intAttr("layer")),
                                       .batchMax = integer(kv->type.shape[2]),
                                       .context = integer(kv->type.shape[4]),
                                       .scale =
                                           words_.real(StepBuilder::f32(op.floatAttr("scale"))),
                                       .batch = integer(Dim::symbol("batch"))};
  const int64_t width = widthOf(out), keyWidth = keyHeads_ * headDim_;
  addStage("append_attention", units, record, op.locations,
           Dim(2 * byteSize(type_) * (width + keyWidth)) * Dim::symbol("batch"),
           Dim(4 * width) * Dim::symbol("batch"));
  b_.addPastCosts(Dim(2 * byteSize(type_) * keyWidth), Dim(4 * width));
  return llvm::Error::success();
}

void PersistentBuilder::needShares(const Op &op, const llvm::Twine &why) {
  if (needsShares_.empty())
    needsShares_ = (op.describe() + ": " + why).str();
}
/// The last stage computes `op`, too.
void PersistentBuilder::joinStage(Op &op) {
  plan::StepT &step = *out_.steps.back();
  step.op += ("+" + op.info().mnemonic).str();
  for (const auto &node : op.locations)
    step.nodes.push_back(llvm::StringRef(node).str());
  if (op.info().cost)
    costs_.back().second = costs_.back().second + op.info().cost(op).flops;
}

/// Of q and k between their linear and attention.
llvm::Error PersistentBuilder::lowerRope(Op &op) {
  using enum ops::Rope::Operand;
  Value *x = source(op.operand(X)), *cos = op.operand(Cos), *sin = op.operand(Sin),
        *scale = op.operand(Scale);
  auto from = channelOf(x);
  auto isTable = [&](const Value *v) {
    return v->def() && v->def()->is(OpCode::Constant) && v->type.isStatic() &&
           v->type.dtype == DType::F32;
  };
  if (!from || !isLinear(*x->def()) || op.operand(Positions) != f_.argument("past") ||
      !isTable(cos) || !isTable(sin) || (scale && !isTable(scale)) || op.boolAttr("to_halves") ||
      op.result()->type.dtype != type_)
    return unsupported(op, "only heads that turn with the position, by tables of f32, have a "
                           "stage");
  if (!llvm::all_of(op.result()->uses(), [](const Use &u) {
        return u.op->is(OpCode::AppendAttention) && u.operand == ops::AppendAttention::Qkv;
      }))
    return unsupported(op, "only attention can read what it computes");
  if (attention_ && !rope_)
    return unsupported(op, "of some layers alone a rotary embedding has no stage");
  auto same = [&](unsigned operand) { return rope_->operand(operand) == op.operand(operand); };
  if (rope_ && rope_->boolAttr("interleaved") != op.boolAttr("interleaved"))
    return unsupported(op, "its pairs are others than those of " + rope_->describe());
  if (rope_ && (!same(Cos) || !same(Sin)))
    return unsupported(op, "its tables differ from those of " + rope_->describe());
  if (rope_ && (bool(rope_->operand(Scale)) != bool(scale) ||
                rope_->floatAttr("epsilon") != op.floatAttr("epsilon")))
    return unsupported(op,
                       "its heads are normed in another way than those of " + rope_->describe());
  rope_ = &op;
  needShares(op, "a rotary embedding has a stage");
  channels_[op.result()] = *from;
  joinStage(op);
  return llvm::Error::success();
}

/// Behind the linear of an MLP's hidden columns.
llvm::Error PersistentBuilder::lowerGated(Op &op) {
  Value *x = source(op.operand(0));
  auto from = channelOf(x);
  if (!from || linears_.empty() || linears_.back().y != x ||
      linears_.back().form.Function != Activation::None || linears_.back().form.Residual ||
      !op.boolAttr("interleaved") || op.result()->type.dtype != type_)
    return unsupported(op, "only behind a linear whose columns are a gate and its value in turn "
                           "it has a stage");
  if (!llvm::all_of(op.result()->uses(),
                    [](const Use &u) { return isLinear(*u.op) && u.operand == ops::Linear::X; }))
    return unsupported(op, "only linears can read what it computes");
  linears_.back().gated = true;
  linears_.back().form.Function = *activationNamed(op.stringAttr("activation"));
  needShares(op, "a gated MLP has stages");
  channels_[op.result()] = *from;
  joinStage(op);
  return llvm::Error::success();
}

/// The stage of the logits chooses too.
llvm::Error PersistentBuilder::checkChoice(Op &op) {
  nextOutput_ = outputOf(op.result(), "next");
  Value *x = source(op.operand(ops::ArgMax::X));
  if (nextOutput_ < 0 || outputOf(x, "logits") < 0 || op.boolAttr("select_last_index") ||
      !x->def() || !(x->def()->is(OpCode::Linear) || x->def()->is(OpCode::QuantizedLinear)))
    return unsupported(op, "only the choice of the next token from the logits has a stage");
  return llvm::Error::success();
}

void PersistentBuilder::addStep() {
  int ids = 0, past = 0;
  for (auto [i, port] : llvm::enumerate(out_.inputs)) {
    if (port->role == plan::Role::Ids)
      ids = int(i);
    if (port->role == plan::Role::Past)
      past = int(i);
  }
  const int64_t area = copies_ * channelBytes_;
  auto input = [&](int i) { return words_.address(place(plan::ArgKind::Input, i)); };
  StepRecord<HostWords> record = {.stage = stage(0, 0),
                                  .steps = integer(paged_ ? Dim(1) : Dim::symbol("steps")),
                                  .ids = input(ids),
                                  .past = input(past),
                                  .next = words_.address(place(plan::ArgKind::Output, nextOutput_)),
                                  .tokens = paged_ ? words_.null() : input(tokensInput_),
                                  .stepIndex = paged_ ? words_.null() : input(stepInput_),
                                  .channels = words_.address(place(plan::ArgKind::Scratch, 0)),
                                  .channelBytes = words_.size(b_.i32(area)),
                                  .copyBytes = integer(channelBytes_),
                                  .batch = integer(Dim::symbol("batch"))};
  if (paged_) {
    record.stage.weights = words_.address(b_.tables());
    record.stage.rows = integer(Dim(b_.pages()->columns));
  }
  addStage(paged_ ? "arg_max" : "arg_max+advance", 0, record, {}, 0, 0);
  const int64_t choices = members_ > 1 ? memberChoiceWords(int(clusterRows(rows_)), int(members_))
                          : clusters_  ? clusterChoiceWords(int(clusterRows(rows_)))
                                       : choiceWords(int(rows_));
  out_.scratch_bytes = 2 * area + choices * 8;
}

llvm::Error buildPersistentStep(PlanPool &pool, plan::FunctionT &out, Function &decode,
                                SymbolBounds bounds, int64_t rows, StepWish wish) {
  bounds["steps"] = {1, 1 << 20};
  bounds["capacity"] = {1, 1 << 20};
  return PersistentBuilder(pool, out, decode, std::move(bounds), rows, wish).run();
}

llvm::Error buildPagedStep(PlanPool &pool, plan::FunctionT &out, Function &decode,
                           const Function &extend, SymbolBounds bounds, int64_t rows,
                           StepWish wish) {
  return PersistentBuilder(pool, out, decode, std::move(bounds), rows, wish, &extend).run();
}

bool leavesProcessors(const plan::FunctionT &steps, int64_t count, const Target &target) {
  const plan::StepT &step = *steps.steps.front();
  const int64_t blocks = int64_t(step.clusters + step.spare_clusters) * step.cluster_blocks;
  return blocks > 0 && blocks + count <= target.multiprocessors;
}

} // namespace gpt2c
