#include "codegen/PersistentStep.h"

#include "ir/Error.h"
#include "runtime/Expr.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/Twine.h"

namespace gpt2c {

namespace {

// As in templates/persistent.cuh; the generated source asserts that they agree.
constexpr int64_t warps = 8, threads = 288, roundUnits = 4, maxBlocks = 256, recordBytes = 128;
constexpr int64_t maxSplits = 8;
/// Blocks that the ranges of keys are made for.
constexpr int64_t processors = 132;
/// Of the 227 KB that a block may have, what is left beside the kernel's own variables.
constexpr int64_t sharedBytes = 226 * 1024;
/// The most bytes of a row of weights in a slot.
constexpr int64_t chunkBytes = 2048;

/// Kinds of stages; linears from `Linear` on, by their activation.
enum Kind { Embed, Attention, Linear };

constexpr std::pair<const char *, const char *> activationFunctions[] = {{"gelu_tanh", "geluTanh"},
                                                                         {"gelu_erf", "geluErf"},
                                                                         {"relu", "relu"},
                                                                         {"sigmoid", "sigmoid"},
                                                                         {"tanh", "tanh"}};

int64_t roundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
const char *cudaType(DType t) { return t == DType::F16 ? "__half" : "float"; }
int64_t lastDim(const Value *v) { return v->type.shape.back().constant().value_or(0); }

plan::ArgT scratch(int64_t offset) {
  plan::ArgT a;
  a.kind = plan::ArgKind::Scratch;
  a.index = int(offset);
  return a;
}

class PersistentStep {
public:
  PersistentStep(PlanPool &pool, plan::FunctionT &out, Function &f, SymbolBounds bounds)
      : b_(pool, out, std::move(bounds)), out_(out), f_(f) {}

  llvm::Error run() {
    out_.name = "generate";
    b_.addInputs(f_);
    addPort("tokens", {Dim::symbol("capacity"), Dim::symbol("batch")});
    addPort("step", {Dim(1)});
    b_.addOutputs(f_);
    for (auto &op : f_.ops())
      if (llvm::Error e = lower(*op))
        return e;
    if (!embed_ || !attention_ || !norm_ || nextOutput_ < 0)
      return unsupported("it is no embedding, layers with norm and attention, and a choice");
    if (llvm::Error e = chooseSizes())
      return e;
    addStep();
    emitKernel();
    return llvm::Error::success();
  }

private:
  llvm::Error unsupported(const llvm::Twine &why) const {
    return makeError(ExitCode::Unsupported, "@decode has no persistent kernel: " + why);
  }
  llvm::Error unsupported(const Op &op, const llvm::Twine &why) const {
    return unsupported(op.describe() + ": " + why);
  }

  void addPort(llvm::StringRef name, llvm::ArrayRef<Dim> shape) {
    auto port = std::make_unique<plan::PortT>();
    port->name = name.str();
    port->dtype = port->exported_dtype = plan::DType::I32;
    for (const Dim &d : shape)
      port->shape.push_back(std::make_unique<plan::ExprT>(b_.expr(d)));
    (name == "tokens" ? tokensInput_ : stepInput_) = out_.inputs.size();
    out_.inputs.push_back(std::move(port));
  }
  plan::ArgT input(int index) const {
    plan::ArgT a;
    a.kind = plan::ArgKind::Input;
    a.index = index;
    return a;
  }
  plan::ArgT output(int index) const {
    plan::ArgT a;
    a.kind = plan::ArgKind::Output;
    a.index = index;
    return a;
  }
  /// The number of `v` among what @decode returns under `name`; -1 when it is not.
  int outputOf(const Value *v, llvm::StringRef name) const {
    for (auto [i, r] : llvm::enumerate(f_.returned()))
      if (source(r) == v && f_.resultNames[i] == name)
        return int(i);
    return -1;
  }

  //===-- channels ----------------------------------------------------------------------------===//
  int64_t newChannel(int64_t bytes) {
    int64_t at = channelBytes_;
    channelBytes_ += roundUp(bytes, 256);
    return at;
  }
  int64_t channelFor(Value *v, int64_t copies = 1) {
    return channels_[v] = newChannel(lastDim(v) * byteSize(v->type.dtype) * copies);
  }
  Value *source(Value *v) const {
    while (v->def() && v->def()->is(OpCode::Reshape))
      v = v->def()->operand(0);
    return v;
  }
  /// The channel that holds `v`; nothing when it is no value of a stage, or in parts.
  std::optional<int64_t> channelOf(Value *v) const {
    auto it = channels_.find(source(v));
    if (it == channels_.end() || maxima_.count(source(v)))
      return std::nullopt;
    return it->second;
  }

  //===-- stages ------------------------------------------------------------------------------===//
  struct Words {
    int64_t kind = 0, units = 0, rows = 0, rowBytes = 0;
    plan::ArgT weights = StepBuilder::null();
    std::vector<plan::ArgT> own;
  };
  void addStage(llvm::StringRef what, Words words, llvm::ArrayRef<llvm::StringRef> nodes,
                const Dim &bytes, const Dim &flops) {
    auto step = std::make_unique<plan::StepT>();
    step->op = what.str();
    step->mode = plan::LaunchMode::Stage;
    for (int64_t size : {words.units, int64_t(1), int64_t(1)})
      step->grid.push_back(std::make_unique<plan::ExprT>(rt::constantExpr(size)));
    step->block = {unsigned(threads), 1, 1};
    auto add = [&](plan::ArgT a) {
      step->args.push_back(std::make_unique<plan::ArgT>(std::move(a)));
    };
    add(b_.i32(words.kind));
    add(b_.i32(words.units));
    add(std::move(words.weights));
    add(b_.i32(words.rows));
    add(b_.i32(words.rowBytes));
    add(b_.i32(0)); // the chunk, once it is known
    for (plan::ArgT &a : words.own)
      add(std::move(a));
    assert(step->args.size() * 8 <= size_t(recordBytes));
    for (llvm::StringRef n : nodes)
      step->nodes.push_back(n.str());
    step->bytes = std::make_unique<plan::ExprT>(b_.sizeExpr(bytes));
    step->flops = std::make_unique<plan::ExprT>(b_.sizeExpr(flops));
    out_.steps.push_back(std::move(step));
  }
  void addStage(llvm::StringRef what, Words words, Op &op) {
    Cost cost = op.info().cost ? op.info().cost(op) : Cost{0, 0};
    addStage(what, std::move(words), op.locations, cost.bytes, cost.flops);
  }

  llvm::Error lower(Op &op) {
    switch (op.code()) {
    case OpCode::Constant:
    case OpCode::Reshape:
    case OpCode::Return:
      return llvm::Error::success();
    case OpCode::Embed:
      return lowerEmbed(op);
    case OpCode::LayerNorm:
    case OpCode::RmsNorm:
      return checkNorm(op);
    case OpCode::Linear:
      return lowerLinear(op);
    case OpCode::AppendAttention:
      return lowerAttention(op);
    case OpCode::ArgMax:
      return checkChoice(op);
    default:
      return unsupported(op, "there is no stage for it");
    }
  }

  llvm::Error lowerEmbed(Op &op) {
    Value *table = op.operand(1), *positions = op.operand(2), *y = op.result();
    DType t = y->type.dtype;
    bool stored = t == DType::F16 || t == DType::F32;
    if (embed_ || !stored || table->type.dtype != t || (positions && positions->type.dtype != t) ||
        op.operand(0) != f_.argument("ids") || op.operand(4) ||
        (op.operand(3) && op.operand(3) != f_.argument("past")))
      return unsupported(op, "only ids and lengths as arguments, and tables of f32 or f16, have a "
                             "stage");
    embed_ = &op;
    type_ = t;
    int64_t d = lastDim(y), vector = 16 / byteSize(t);
    if (d % vector != 0)
      return unsupported(op, "its width is no multiple of " + llvm::Twine(vector));
    auto tableArg = b_.read(table), positionsArg = b_.read(positions);
    if (!tableArg)
      return tableArg.takeError();
    if (!positionsArg)
      return positionsArg.takeError();
    Words w;
    w.kind = Embed;
    w.units = d / vector;
    w.own = {std::move(*tableArg), std::move(*positionsArg),
             b_.i32(positions ? positions->type.shape[0] : Dim(0)), scratch(channelFor(y))};
    addStage("embed", std::move(w), op);
    return llvm::Error::success();
  }

  /// Norms are computed by the linears that use them, all in the same way.
  llvm::Error checkNorm(Op &op) {
    const Type &x = op.operand(0)->type, &gain = op.operand(1)->type;
    bool rms = op.is(OpCode::RmsNorm);
    bool row = rms || op.intAttr("axis") == -1 || op.intAttr("axis") == int64_t(x.rank()) - 1;
    if (!row || x.dtype != type_ || op.result()->type.dtype != type_ || gain.rank() != 1 ||
        gain.shape[0] != x.shape.back() || lastDim(op.operand(0)) % 4 != 0 ||
        (gain.dtype != DType::F16 && gain.dtype != DType::F32) ||
        (!rms && op.operand(2) && op.operand(2)->type != gain))
      return unsupported(op,
                         "only norms of a row with gains and shifts in f32 or f16 have a stage");
    if (!llvm::all_of(op.result()->uses(),
                      [](const Use &u) { return u.op->is(OpCode::Linear) && u.operand == 0; }))
      return unsupported(op, "only a norm that linears use is part of a stage");
    if (norm_ && (norm_->code() != op.code() || norm_->operand(1)->type != gain))
      return unsupported(op, "its kind or width differs from that of " + norm_->describe());
    norm_ = &op;
    return llvm::Error::success();
  }

  llvm::Error lowerLinear(Op &op) {
    Value *w = op.operand(1), *bias = op.operand(2), *residual = op.operand(3), *y = op.result();
    Value *x = source(op.operand(0));
    Op *norm = x->def() && (x->def()->is(OpCode::LayerNorm) || x->def()->is(OpCode::RmsNorm))
                   ? x->def()
                   : nullptr;
    if (norm)
      x = source(norm->operand(0));
    auto from = channels_.find(x);
    int logits = outputOf(y, "logits");
    bool constant = w->def() && w->def()->is(OpCode::Constant) && w->type.isStatic();
    if (from == channels_.end() || !constant || w->type.dtype != type_ ||
        (bias && bias->type.dtype != type_) ||
        (logits >= 0 ? y->type.dtype != DType::F32 : y->type.dtype != type_))
      return unsupported(op, "its operands are no constant weights and values of stages in one "
                             "element type");
    Words words;
    int64_t n = lastDim(y), k = lastDim(op.operand(0));
    words.units = (n + warps - 1) / warps;
    words.rows = n;
    words.rowBytes = k * byteSize(type_);
    std::string what = norm ? (norm->info().mnemonic + "+linear").str() : "linear";
    const std::string &activation = op.stringAttr("activation");
    auto known = llvm::find(activations_, activation);
    words.kind = Linear + (known - activations_.begin());
    if (known == activations_.end()) {
      if (activation != "none" &&
          llvm::none_of(activationFunctions, [&](auto &a) { return activation == a.first; }))
        return unsupported(op, "no kernel has the activation " + activation);
      activations_.push_back(activation);
    }

    llvm::Error error = llvm::Error::success();
    auto take = [&](Value *v) {
      auto a = b_.read(v);
      if (a)
        return std::move(*a);
      error = llvm::joinErrors(std::move(error), a.takeError());
      return StepBuilder::null();
    };
    words.weights = take(w);
    plan::ArgT none = StepBuilder::null(), maxima = none, to = none, added = none, head = none;
    if (maxima_.count(x))
      maxima = scratch(maxima_[x]);
    if (logits >= 0)
      head = output(logits);
    else
      to = scratch(channelFor(y));
    if (bias)
      what += "+bias";
    if (activation != "none")
      what += "+" + activation;
    if (residual) {
      auto at = channelOf(residual);
      if (!at || residual->type.dtype != type_)
        return llvm::joinErrors(std::move(error),
                                unsupported(op, "its residual is no value of a stage"));
      added = scratch(*at);
      what += "+residual";
    }
    words.own = {scratch(from->second),
                 to,
                 maxima,
                 take(norm ? norm->operand(1) : nullptr),
                 take(norm && norm->is(OpCode::LayerNorm) ? norm->operand(2) : nullptr),
                 StepBuilder::f32(norm ? norm->floatAttr("epsilon") : 0.0f),
                 take(bias),
                 added,
                 head};
    if (error)
      return error;
    widths_.push_back(k);
    addStage(what, std::move(words), op);
    return llvm::Error::success();
  }

  llvm::Error lowerAttention(Op &op) {
    Value *kv = op.operand(0), *qkv = op.operand(1), *out = op.result(1);
    auto from = channelOf(qkv);
    DType kvType = kv->type.dtype;
    if (!from || op.operand(2) != f_.argument("past") || op.operand(3) ||
        qkv->type.dtype != type_ || out->type.dtype != type_ ||
        (kvType != DType::F32 && kvType != DType::F16))
      return unsupported(op, "only causal attention over a state in f32 or f16 has a stage");
    if (!llvm::all_of(out->uses(),
                      [](const Use &u) { return u.op->is(OpCode::Linear) && u.operand == 0; }))
      return unsupported(op, "only linears can read what it computes");
    if (attention_ && attention_->operand(0)->type != kv->type)
      return unsupported(op, "its KV state differs from that of " + attention_->describe());
    attention_ = &op;
    heads_ = op.intAttr("num_heads");
    headDim_ = lastDim(out) / heads_;
    kvType_ = kvType;
    for (splits_ = 1; splits_ < maxSplits && 2 * splits_ * heads_ <= processors;)
      splits_ *= 2;
    Value *state = f_.argument("kv");
    auto kvArg = b_.read(state);
    if (!kvArg)
      return kvArg.takeError();
    plan::ArgT maxima = StepBuilder::null();
    int64_t at = channelFor(out, splits_);
    if (splits_ > 1) {
      maxima_[out] = newChannel(heads_ * splits_ * 8);
      maxima = scratch(maxima_[out]);
    }
    Words w;
    w.kind = Attention;
    w.units = heads_ * splits_;
    w.own = {scratch(*from),
             std::move(*kvArg),
             scratch(at),
             maxima,
             b_.i32(op.intAttr("layer")),
             b_.i32(kv->type.shape[2]),
             b_.i32(kv->type.shape[4]),
             StepBuilder::f32(op.floatAttr("scale"))};
    Dim width(lastDim(out));
    addStage("append_attention", std::move(w), op.locations, Dim(4) * width * Dim(byteSize(type_)),
             Dim(4) * width);
    b_.addPastCosts(Dim(2 * byteSize(kvType)) * width, Dim(4) * width);
    return llvm::Error::success();
  }

  /// The stage of the logits chooses too.
  llvm::Error checkChoice(Op &op) {
    nextOutput_ = outputOf(op.result(), "next");
    Value *x = source(op.operand(0));
    if (nextOutput_ < 0 || outputOf(x, "logits") < 0 || op.boolAttr("select_last_index") ||
        !x->def() || !x->def()->is(OpCode::Linear))
      return unsupported(op, "only the choice of the next token from the logits has a stage");
    return llvm::Error::success();
  }

  //===-- the kernel --------------------------------------------------------------------------===//
  llvm::Error chooseSizes() {
    int64_t bytes = byteSize(type_), vector = 16 / bytes, d = lastDim(norm_->operand(0));
    largest_ = *llvm::max_element(widths_);
    widths_.push_back(d);
    auto fits = [&](int64_t chunk) {
      return chunk % vector == 0 && chunk * bytes <= chunkBytes &&
             llvm::all_of(widths_, [&](int64_t k) { return k % chunk == 0; });
    };
    for (chunk_ = d; chunk_ > 0 && !fits(chunk_);)
      --chunk_;
    if (chunk_ == 0)
      return unsupported("the widths of its linears have no common divisor that is a multiple of " +
                         llvm::Twine(vector));
    records_ = out_.steps.size() + 1;
    slotBytes_ = roundUp(warps * chunk_ * bytes, 128);
    inputBytes_ = roundUp(largest_ * bytes, 128);
    reduceBytes_ = roundUp(std::max<int64_t>(warps * (headDim_ + 2), 32) * 4, 128);
    int64_t fixed = inputBytes_ + 2 * reduceBytes_ + records_ * recordBytes;
    slots_ = (sharedBytes - fixed) / (slotBytes_ + 16);
    if (fixed > sharedBytes || slots_ < roundUnits)
      return unsupported("its stages and inputs leave no shared memory for weights");
    shared_ = slots_ * (slotBytes_ + 16) + fixed;
    for (auto &step : out_.steps)
      if (step->args[2]->kind != plan::ArgKind::Null)
        *step->args[5] = b_.i32(chunk_ * bytes);
    return llvm::Error::success();
  }

  void addStep() {
    Words w;
    int ids = 0, past = 0;
    for (auto [i, port] : llvm::enumerate(out_.inputs)) {
      if (port->role == plan::Role::Ids)
        ids = int(i);
      if (port->role == plan::Role::Past)
        past = int(i);
    }
    w.own = {b_.i32(Dim::symbol("steps")), input(ids),        input(past), output(nextOutput_),
             input(tokensInput_),          input(stepInput_), scratch(0),  b_.i32(channelBytes_)};
    addStage("arg_max+advance", std::move(w), {}, 0, 0);
    out_.scratch_bytes = 2 * channelBytes_ + 3 * maxBlocks * 8 + 8;
  }

  void emitKernel() {
    KernelSource k;
    k.name = b_.pool().nextKernelName("persistent");
    k.headers = {"persistent.cuh", "persistent_tokens.cuh", "persistent_attention.cuh",
                 "persistent_linear.cuh", "epilogue.cuh"};
    k.params = {"records", "count"};
    k.threads = threads;
    k.sharedBytes = shared_;
    Value *gain = norm_->operand(1);
    const char *t = cudaType(type_);
    llvm::raw_string_ostream os(k.text);
    auto constant = [&](llvm::StringRef name, int64_t value) {
      os << "  static constexpr int " << name << " = " << value << ";\n";
    };
    os << "struct " << k.name << "Kernel {\n";
    constant("Slots", slots_);
    constant("SlotBytes", slotBytes_);
    constant("InputBytes", inputBytes_);
    constant("ReduceBytes", reduceBytes_);
    constant("Records", records_);
    os << "};\nstatic_assert(persistent::Layout<" << k.name << "Kernel>::bytes == " << shared_
       << " && persistent::threads == " << threads << " && persistent::unitRows == " << warps
       << " && persistent::maxBlocks == " << maxBlocks << ");\n";
    os << "struct " << k.name << "Embed {\n  using W = " << t << ";\n  using Y = " << t << ";\n";
    constant("D", lastDim(embed_->result()));
    os << "  static constexpr bool Position = " << (embed_->operand(2) ? "true" : "false")
       << ";\n};\n";
    os << "struct " << k.name << "Attention {\n  using X = " << t
       << ";\n  using Kv = " << cudaType(kvType_) << ";\n";
    constant("HeadDim", headDim_);
    constant("Heads", heads_);
    constant("Splits", splits_);
    os << "};\nstruct " << k.name << "Linear {\n  using T = " << t
       << ";\n  using P = " << cudaType(gain->type.dtype) << ";\n";
    constant("D", lastDim(norm_->operand(0)));
    constant("K", largest_);
    constant("Chunk", chunk_);
    constant("Splits", splits_);
    constant("HeadDim", headDim_);
    os << "  static constexpr NormKind Norm = NormKind::"
       << (norm_->is(OpCode::RmsNorm) ? "Rms" : "Layer") << ";\n"
       << "  static __device__ __forceinline__ float activate(int kind, float x) {\n"
       << "    float v[1] = {x};\n    switch (kind) {\n";
    for (auto [i, activation] : llvm::enumerate(activations_))
      for (auto [name, function] : activationFunctions)
        if (activation == name)
          os << "    case " << Linear + i << ":\n      epilogue::" << function << "(v);\n"
             << "      break;\n";
    os << "    }\n    return v[0];\n  }\n};\n"
       << "extern \"C\" __global__ void __launch_bounds__(" << threads << ", 1) " << k.name
       << "(const persistent::Record *records, int count) {\n"
       << "#if __CUDA_ARCH__ >= 900\n  extern __shared__ uint4 dynamicShared[];\n"
       << "  persistent::run<" << k.name << "Kernel>(\n      dynamicShared, records, count,\n"
       << "      [](auto &block, const persistent::Record &stage) {\n"
       << "        switch (stage.integer(persistent::Kind)) {\n"
       << "        case " << Embed << ":\n          return tile::embedStage<" << k.name
       << "Embed>(block, stage);\n        case " << Attention
       << ":\n          return tile::attentionStage<" << k.name << "Attention>(block, stage);\n"
       << "        default:\n          return tile::linearStage<" << k.name
       << "Linear>(block, stage);\n        }\n      },\n"
       << "      [](const auto &block, const persistent::Record &stage) {\n"
       << "        if (stage.integer(persistent::Kind) == " << Attention << ")\n"
       << "          tile::attentionPrefetch<" << k.name << "Attention>(block, stage);\n"
       << "      });\n#endif\n}\n";
    os.flush();
    int index = b_.pool().kernel(std::move(k));
    for (auto &step : out_.steps) {
      step->kernel = index;
      step->shared_bytes = shared_;
    }
  }

  StepBuilder b_;
  plan::FunctionT &out_;
  Function &f_;
  llvm::DenseMap<Value *, int64_t> channels_; ///< offsets
  llvm::DenseMap<Value *, int64_t> maxima_;   ///< of values in parts
  int64_t channelBytes_ = 0;
  std::vector<std::string> activations_;
  std::vector<int64_t> widths_; ///< K of the linears
  Op *embed_ = nullptr, *norm_ = nullptr, *attention_ = nullptr;
  int nextOutput_ = -1, tokensInput_ = 0, stepInput_ = 0;
  DType type_ = DType::F32, kvType_ = DType::F32;
  int64_t heads_ = 0, headDim_ = 0, splits_ = 1, largest_ = 0, chunk_ = 0, records_ = 0;
  int64_t slotBytes_ = 0, inputBytes_ = 0, reduceBytes_ = 0, slots_ = 0, shared_ = 0;
};

} // namespace

llvm::Error buildPersistentStep(PlanPool &pool, plan::FunctionT &out, Function &decode,
                                SymbolBounds bounds) {
  bounds["steps"] = {1, 1 << 20};
  bounds["capacity"] = {1, 1 << 20};
  return PersistentStep(pool, out, decode, std::move(bounds)).run();
}

} // namespace gpt2c
