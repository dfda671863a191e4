// insert-quantize: weights of products become int8, fp8 or int4, by the scheme asked for
//   w8a16        quantized_linear(x, w, w_scale)
//   w8a8         (q, s) = quantize(x); quantized_linear(q, w, w_scale, s)
//   w8a8-tensor  the same with one scale for each matrix of w (queries, keys and values, a gate and
//                what it gates are one each, also where one product computes them) and a
//                calibrated one for x
//   fp8          as w8a8, with w and q in E4M3; but for x of queries and keys whose scores would be
//                off by much
//   fp8-tensor   the same with a calibrated scale for x
//   fp8-weights  as w8a16, with w in E4M3
//   fp8-block    the same with a scale for each block of 128 x 128, given for each row
//   w4a16        the same with w in four bits, in groups of a row
// Where x has one row for each sequence it stays as it is: the time goes into reading weights,
// which are the same integers. So does it in @prefill_short, which is @prefill for prompts of few
// tokens and is made here where the two differ. With `widenWeights` @prefill_widened and
// @decode_widened are made here, too, with the floats that the int8 weights stand for:
//                linear(x, w w_scale)
// but for a vocabulary projection where rows of all products are units of 16 bytes in int8.
// Other operands, attributes and the result's type stay. The vocabulary projection has int8 weights
// in every scheme and keeps its input. Where its weights are the table of tokens, too, a scale for
// each output channel is one for each row of the table, and one int8 table serves both:
//   embed(ids, tokens, ...) becomes embed(ids, q, ..., scale)
// What the model itself has in int8 stays as it is, with and without a scheme: weights, and
// activations x = sx (qx - zx) with one scale and zero point,
//   x w^T = sx sw (qx qw^T - zx sum_k qw)     quantized_linear(qx, qw, sw, sx, .., sum_offset)
#include "ir/Error.h"
#include "ir/FunctionNames.h"
#include "ir/ops/Quantize.h"
#include "passes/Numbers.h"
#include "passes/Rewrite.h"
#include "passes/fuse/MergedProduct.h"
#include "passes/quantize/ErrorFeedback.h"
#include "passes/quantize/Quantization.h"
#include "passes/quantize/ScoreDivergence.h"
#include "passes/quantize/TokenTables.h"
#include "passes/quantize/WeightGroups.h"
#include "passes/quantize/WeightScales.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Regex.h"

#include <numeric>

namespace gpt2c {

namespace {

/// The sum of each row, times `factor`.
Tensor rowSums(const Tensor &q, int64_t factor) {
  Tensor sums(DType::I32, {q.dim(0)});
  const int8_t *row = q.data<int8_t>();
  for (int64_t i = 0; i < q.dim(0); ++i, row += q.dim(1))
    sums.data<int32_t>()[i] =
        static_cast<int32_t>(factor * std::accumulate(row, row + q.dim(1), int64_t(0)));
  return sums;
}

/// Elements of a row of x that share a scale, 0: all of them: what the op that makes x can see at
/// once, where products have groups of so many. A tile of a product covers 128 columns, an
/// attention block one head. What a gate lets through has outliers as an activation has.
int64_t activationGroup(const Value &x) {
  constexpr int64_t tileColumns = 128;
  const Op *def = x.def();
  int64_t k = x.type.shape.back().constant().value_or(0);
  if (!def || k == 0)
    return 0;
  const bool product = def->is(OpCode::Linear) || def->is(OpCode::QuantizedLinear);
  const bool active =
      def->is(OpCode::Gated) || (product && def->stringAttr("activation") != "none");
  if (active && k % tileColumns == 0)
    return k == tileColumns ? 0 : tileColumns;
  bool attention = def->is(OpCode::Attention) || def->is(OpCode::CachedAttention) ||
                   def->is(OpCode::AppendAttention);
  const int64_t head = attention ? k / def->intAttr("num_heads") : k;
  return head < k && (head == 64 || head == tileColumns) ? head : 0;
}

/// Whether x has one row for each sequence: [batch, 1, k], or of prompts what is behind
/// gather_last, [batch, k].
bool isOneToken(const Function &f, const Value &x) {
  llvm::ArrayRef<Dim> shape = x.type.shape;
  return (shape.size() == 3 && shape[1] == Dim(1)) || (shape.size() == 2 && f.argument("length"));
}

/// Which matrix each row of a product's weights belongs to, by what reads its columns: queries,
/// keys and values of attention, a gate and what it gates, slices. Empty where it is one matrix.
std::vector<int32_t> matricesOf(const Op &product) {
  const Value *y = product.result();
  const auto n = y->type.shape.back().constant();
  while (y->hasOneUse() && y->uses()[0].op->is(OpCode::Rope))
    y = y->uses()[0].op->result();
  if (!n)
    return {};
  std::vector<int32_t> rows(*n, 0);
  llvm::SetVector<int64_t> begins;
  for (const Use &u : y->uses()) {
    const Op &op = *u.op;
    if (op.is(OpCode::Gated) && op.boolAttr("interleaved")) {
      for (int64_t i = 0; i < *n; ++i)
        rows[i] = int32_t(i % 2);
      return rows;
    }
    if (op.is(OpCode::Gated)) {
      begins.insert(*n / 2);
    } else if (op.is(OpCode::AppendAttention) && u.operand == ops::AppendAttention::Qkv) {
      const int64_t heads = op.intAttr("num_heads");
      const auto keyHeads = op.operand(ops::AppendAttention::Kv)->type.shape[3].constant();
      if (!keyHeads)
        return {};
      const int64_t size = *n / (heads + 2 * *keyHeads);
      begins.insert(heads * size);
      begins.insert((heads + *keyHeads) * size);
    } else if (op.is(OpCode::Slice)) {
      const Columns columns = columnSlice(op.result());
      if (columns.source == y && columns.step == 1)
        begins.insert(columns.first);
    }
  }
  for (int64_t begin : begins)
    for (int64_t i = begin; i < *n; ++i)
      ++rows[i];
  return rows;
}

class Inserter {
public:
  explicit Inserter(PassContext &ctx) : ctx_(ctx), options_(ctx.options().quantize) {}

  llvm::Error run(Function &f) {
    llvm::SmallVector<Op *> linears;
    for (auto &op : f.ops())
      if (importedWeights(*op) || (isQuantisable(*op) && options_.scheme != QuantizeScheme::None))
        linears.push_back(op.get());
    for (Op *op : linears)
      if (llvm::Error e = rewrite(f, op))
        return e;
    llvm::SmallVector<Op *> lookups;
    for (auto &op : f.ops())
      if (op->is(OpCode::Embed))
        lookups.push_back(op.get());
    for (Op *op : lookups)
      if (llvm::Error e = shareTable(f, op))
        return e;
    f.eraseDeadOps();
    return widenTables(f);
  }

private:
  llvm::Error rewrite(Function &f, Op *linear) {
    auto [treatment, why] = treatmentOf(*linear, options_);
    const Op *imported = importedWeights(*linear);
    if (imported && treatment == Treatment::Keep)
      treatment = Treatment::WeightsOnly;
    std::string name = layerName(*linear);
    if (!why.empty() && told_.insert(name).second)
      ctx_.note(name +
                    (treatment == Treatment::Keep ? " keeps its precision: " : ": weights only: ") +
                    why,
                linear->locations);
    if (treatment == Treatment::Keep)
      return llvm::Error::success();
    const bool wide = functions::isWidened(f.name());
    if (wide || f.name() == functions::prefillShort ||
        isOneToken(f, *linear->operand(ops::Linear::X)))
      treatment = Treatment::WeightsOnly;
    if (wide && !imported && (!isVocabularyProjection(*linear) || !haveBytes(f)))
      return widen(f, linear);
    Builder b(f, linear);
    b.setLocations(linear->locations);
    Value *q = nullptr, *scale = nullptr, *zero = nullptr;
    if (imported) {
      q = imported->operand(ops::Dequantize::Q);
      scale = imported->operand(ops::Dequantize::Scale);
      zero = imported->operand(ops::Dequantize::Zero);
    } else {
      if (llvm::Error e = checkFinite(*constantOp(linear->operand(ops::Linear::W))))
        return e;
      const QuantisedWeight &weight =
          weightOf(constantOp(linear->operand(ops::Linear::W))->constant, *linear);
      q = b.constant(weight.q);
      scale = b.constant(weight.scale);
      zero = weight.zero.valid() ? b.constant(weight.zero) : nullptr;
      q->name = linear->operand(ops::Linear::W)->name;
    }
    Value *x = linear->operand(ops::Linear::X), *xScale = nullptr, *offset = nullptr;
    const bool given = imported && q->type.dtype == DType::I8 && isQuantisedInput(*x);
    llvm::SmallVector<NamedAttr> attrs{{"activation", linear->stringAttr("activation")}};
    if (linear->hasAttr("dtype") || given || treatment == Treatment::Full)
      attrs.push_back({"dtype", linear->result()->type.dtype});
    if (given) {
      if (llvm::Error e = importedInput(b, *imported, x, xScale, offset))
        return e;
    } else if (treatment == Treatment::Full) {
      auto quantised = quantisedInput(*linear, q->type.dtype, b);
      if (!quantised)
        return quantised.takeError();
      std::tie(x, xScale) = *quantised;
    }
    auto y = b.value(OpCode::QuantizedLinear,
                     {x, q, scale, xScale, linear->operand(ops::Linear::Bias),
                      linear->operand(ops::Linear::Residual), offset, zero},
                     attrs);
    if (!y)
      return y.takeError();
    (*y)->name = linear->result()->name;
    linear->result()->replaceAllUsesWith(*y);
    return llvm::Error::success();
  }

  /// Whether a widened function keeps the bytes of its vocabulary: where its steps may be one
  /// kernel that reads both bytes and floats in the layers. It reads neither rows of int8 that are
  /// no units of 16 bytes nor, in all forms, four bits: a step is one kernel then if all are
  /// floats.
  bool haveBytes(const Function &f) const {
    const bool fourBits = ctx_.options().quantize.scheme == QuantizeScheme::W4A16;
    return !(fourBits && f.name() == functions::widened(functions::decode)) &&
           llvm::all_of(f.ops(), [](const auto &op) {
             return !(op->is(OpCode::Linear) || op->is(OpCode::QuantizedLinear)) ||
                    op->operand(ops::Linear::W)->type.shape[1].constant().value_or(0) % 16 == 0;
           });
  }

  /// Gives the product the floats that its int8 weights stand for.
  llvm::Error widen(Function &f, Op *linear) {
    const Op &old = *constantOp(linear->operand(ops::Linear::W));
    if (llvm::Error e = checkFinite(old))
      return e;
    auto [it, isNew] = wide_.try_emplace(old.constant.raw());
    if (isNew)
      it->second = floatsOf(weightOf(old.constant, *linear), old.constant.dtype());
    Builder b(f, linear);
    b.setLocations(linear->locations);
    Value *w = b.constant(it->second);
    w->name = linear->operand(ops::Linear::W)->name;
    linear->setOperand(ops::Linear::W, w);
    return llvm::Error::success();
  }

  /// Reads a table of tokens as the product with it does.
  llvm::Error shareTable(Function &f, Op *embed) {
    const Op *tokens = constantOp(embed->operand(ops::Embed::Tokens));
    auto shared = tokens ? weights_.find(tokens->constant.raw()) : weights_.end();
    if (shared == weights_.end() || shared->second.q.shape() != tokens->constant.shape())
      return llvm::Error::success();
    Builder b(f, embed);
    b.setLocations(embed->locations);
    Value *q = b.constant(shared->second.q);
    q->name = embed->operand(ops::Embed::Tokens)->name;
    llvm::SmallVector<Value *> operands(embed->operands());
    operands.resize(ops::Embed::TokenScale);
    operands[ops::Embed::Tokens] = q;
    operands.push_back(b.constant(shared->second.scale));
    auto y = b.value(OpCode::Embed, operands, {{"dtype", Attr(embed->result()->type.dtype)}});
    if (!y)
      return y.takeError();
    (*y)->name = embed->result()->name;
    embed->result()->replaceAllUsesWith(*y);
    return llvm::Error::success();
  }

  /// Whether the model quantised x, with one scale and zero point for all of it.
  static bool isQuantisedInput(const Value &x) {
    using enum ops::AffineDequantize::Operand;
    const Op *dequantize = x.def();
    if (!dequantize || !dequantize->is(OpCode::AffineDequantize) ||
        dequantize->operand(Scale)->type.rank() != 0 ||
        dequantize->operand(ZeroPoint)->type.rank() != 0)
      return false;
    const Op *q = dequantize->operand(Q)->def();
    return dequantize->operand(Q)->type.dtype == DType::I8 || (q && q->is(OpCode::AffineQuantize));
  }

  /// Such an x as i8 with its scale, and what its zero point adds to the integer products.
  static llvm::Error importedInput(Builder &b, const Op &weights, Value *&x, Value *&xScale,
                                   Value *&offset) {
    const Op *dequantize = x->def();
    Value *zero = dequantize->operand(ops::AffineDequantize::ZeroPoint);
    x = dequantize->operand(ops::AffineDequantize::Q);
    xScale = dequantize->operand(ops::AffineDequantize::Scale);
    // saturate(r + z) to 0 .. 255, less 128, is saturate(r + z - 128) to -128 .. 127.
    const Op *quantize = x->type.dtype == DType::U8 ? x->def() : nullptr;
    if (const Op *c = constantOp(zero)) {
      int64_t z = c->constant.asInt(0) - (quantize ? 128 : 0);
      zero = b.constant(Tensor::scalar(static_cast<int8_t>(z)));
      if (z != 0)
        offset = b.constant(rowSums(constantOp(weights.operand(ops::Dequantize::Q))->constant, -z));
    } else {
      auto wide = b.value(OpCode::Cast, {zero}, {{"to", DType::I32}});
      if (quantize && wide)
        wide = b.value(OpCode::Sub, {*wide, b.constant(Tensor::scalar<int32_t>(128))});
      if (!wide)
        return wide.takeError();
      auto narrow = b.value(OpCode::Cast, {*wide}, {{"to", DType::I8}});
      if (!narrow)
        return narrow.takeError();
      auto sums = b.value(
          OpCode::Mul,
          {*wide,
           b.constant(rowSums(constantOp(weights.operand(ops::Dequantize::Q))->constant, -1))});
      if (!sums)
        return sums.takeError();
      zero = *narrow;
      offset = *sums;
    }
    if (!quantize)
      return llvm::Error::success();
    auto q = b.value(OpCode::AffineQuantize, {quantize->operand(ops::AffineQuantize::X),
                                              quantize->operand(ops::AffineQuantize::Scale), zero});
    if (!q)
      return q.takeError();
    x = *q;
    return llvm::Error::success();
  }

  /// x in the type of the weights, and its scales.
  llvm::Expected<std::pair<Value *, Value *>> quantisedInput(const Op &linear, DType to,
                                                             Builder &b) {
    Value *x = linear.operand(ops::Linear::X), *given = nullptr;
    int64_t group = activationGroup(*x);
    if (hasCalibratedScales(options_.scheme)) {
      auto stats = statsOf(linear, options_);
      if (!stats)
        return stats.takeError();
      given =
          b.constant(Tensor::scalar(quantScale((*stats)->range(options_.observer), stepsOf(to))));
      group = 0;
    }
    auto op = b.create(OpCode::Quantize, {x, given}, {{"group", group}, {"to", to}});
    if (!op)
      return op.takeError();
    return std::pair((*op)->result(ops::Quantize::Q),
                     given ? given : (*op)->result(ops::Quantize::S));
  }

  /// What is quantised has neither NaN nor infinities: they would become numbers.
  llvm::Error checkFinite(const Op &weight) const {
    if (weights_.contains(weight.constant.raw()))
      return llvm::Error::success();
    const NumberCounts c = countNumbers(weight.constant);
    if (!c.nan && !c.infinite)
      return llvm::Error::success();
    return makeError(
        ExitCode::Unsupported,
        constantName(weight) + " holds " + llvm::Twine(c.nan) + " NaN and " +
            llvm::Twine(c.infinite) +
            " infinities, which quantised weights cannot: mend the model, or keep this "
            "weight's precision with --quantize-exclude");
  }

  /// Functions share weights, and what is multiplied with them.
  const QuantisedWeight &weightOf(const Tensor &w, const Op &linear) {
    auto [it, isNew] = weights_.try_emplace(w.raw());
    if (isNew) {
      it->second = options_.scheme == QuantizeScheme::W8A8Tensor
                       ? quantiseWeightByTensor(w, matricesOf(linear))
                       : stored(w, linear);
      kept_.push_back(w);
    }
    return it->second;
  }

  QuantisedWeight stored(const Tensor &w, const Op &linear) {
    const WeightStorage storage = storageOf(linear, options_);
    if (schemeOf(linear, options_) == QuantizeScheme::W4A16 && storage.type != DType::I4 &&
        !isVocabularyProjection(linear) && !options_.keep.contains(layerName(linear)))
      ctx_.note(layerName(linear) + " has weights of eight bits: rows of " + llvm::Twine(w.dim(1)) +
                    " elements do not divide into groups of four",
                linear.locations);
    if (storage.type == DType::I4) {
      const ActivationStats *stats =
          options_.calibration ? options_.calibration->find(layerName(linear)) : nullptr;
      if (stats && stats->products && stats->products->channels() == w.dim(1))
        if (auto fed = quantiseWithFeedback(w, storage.group, *stats->products, stats->divisors))
          return std::move(*fed);
      ctx_.note(layerName(linear) + " is rounded without error feedback: " +
                    (!stats             ? "there are no statistics of its input"
                     : !stats->products ? "its statistics have no products of columns"
                                        : "its input is 0"),
                linear.locations);
    }
    return storage.rows > 1
               ? quantiseWeightByBlock(w, storage.rows, storage.group, momentsOf(linear))
               : quantiseWeight(w, storage.group, momentsOf(linear), storage.type);
  }

  /// Smoothing made the columns of an input alike, which the gain alone does not tell: it is small
  /// where normalised elements are large, and smaller then.
  std::vector<float> momentsOf(const Op &linear) const {
    const bool smoothed = options_.scheme == QuantizeScheme::W8A8Smooth &&
                          treatmentOf(linear, options_).first == Treatment::Full;
    return smoothed ? std::vector<float>() : inputMoments(linear, options_);
  }

  PassContext &ctx_;
  const QuantizeOptions &options_;
  std::map<const void *, QuantisedWeight> weights_;
  std::map<const void *, Tensor> wide_;
  std::vector<Tensor> kept_; // so that no other constant gets the address of one that is gone
  llvm::StringSet<> told_;
};

} // namespace

/// Makes @prefill_short, in front of @prefill, if the scheme quantises activations.
static void addShortPrefill(Module &m, const QuantizeOptions &options) {
  if (options.scheme == QuantizeScheme::None || options.isWeightsOnly())
    return;
  auto prefill =
      llvm::find_if(m.functions, [](auto &f) { return f->name() == functions::prefill; });
  if (prefill != m.functions.end() && !m.function(functions::prefillShort))
    m.functions.insert(prefill, (*prefill)->clone(functions::prefillShort));
}

static void addWidened(Module &m) {
  for (llvm::StringRef name : {functions::prefill, functions::decode}) {
    const std::string wide = functions::widened(name);
    if (const Function *f = m.function(name); f && !m.function(wide))
      m.functions.push_back(f->clone(wide));
  }
}

/// Layers that have a scheme of their own are layers of the model.
static llvm::Error checkLayers(const Module &m, const QuantizeOptions &options) {
  llvm::StringSet<> known;
  for (const auto &f : m.functions)
    for (const auto &op : f->ops())
      if (isQuantisable(*op))
        known.insert(layerName(*op));
  for (const auto &layer : options.chosen)
    if (!known.contains(layer.first()))
      return makeError(ExitCode::Usage,
                       "there is no layer " + layer.first() +
                           " to choose a scheme for: --quantize-layer takes the names that "
                           "gpt2c-dump has");
  return llvm::Error::success();
}

/// Patterns of --quantize-exclude and --quantize-include each name a layer: one that does not is
/// misspelt.
static llvm::Error checkPatterns(const Module &m, const QuantizeOptions &options) {
  for (auto [flag, list] : {std::pair("--quantize-exclude", &options.exclude),
                            std::pair("--quantize-include", &options.include)})
    for (const std::string &expression : *list) {
      const llvm::Regex regex(expression);
      bool matched = false;
      llvm::SetVector<llvm::StringRef> names;
      for (const auto &f : m.functions)
        for (const auto &op : f->ops()) {
          if (!isQuantisable(*op) && !importedWeights(*op))
            continue;
          auto all = layerNames(*op);
          matched |= llvm::any_of(all, [&](llvm::StringRef n) { return regex.match(n); });
          if (!all.empty())
            names.insert(all.front());
        }
      if (matched)
        continue;
      constexpr size_t shown = 6;
      return makeError(
          ExitCode::Usage,
          llvm::Twine(flag) + "=" + expression + " matches nothing; products with weights are " +
              llvm::join(names.getArrayRef().take_front(shown), ", ") +
              (names.size() > shown ? " and " + std::to_string(names.size() - shown) + " more"
                                    : ""));
    }
  return llvm::Error::success();
}

llvm::Error insertQuantize(PassContext &ctx) {
  if (llvm::Error e = checkPatterns(ctx.module(), ctx.options().quantize))
    return e;
  if (llvm::Error e = checkLayers(ctx.module(), ctx.options().quantize))
    return e;
  Inserter inserter(ctx);
  llvm::SmallPtrSet<const Function *, 4> done; // their weights were int8 once
  for (auto &f : ctx.module().functions)
    if (functions::isWidened(f->name()))
      done.insert(f.get());
  const QuantizeOptions &options = ctx.options().quantize;
  findWideInputs(ctx.module(), ctx.options().quantize);
  settleWeightGroup(ctx);
  addShortPrefill(ctx.module(), options);
  if (options.scheme == QuantizeScheme::Fp8Block)
    ctx.note("activations keep their precision: no kernel multiplies fp8 by scales of blocks", {});
  else if (options.scheme != QuantizeScheme::Fp8Weights && isFp8(options.scheme) &&
           !options.fp8Products)
    ctx.note("activations keep their precision: not all architectures of the plan multiply fp8",
             {});
  if (options.widenWeights)
    addWidened(ctx.module());
  for (auto &f : ctx.module().functions)
    if (!done.contains(f.get()))
      if (llvm::Error e = inserter.run(*f))
        return e;
  return llvm::Error::success();
}

} // namespace gpt2c
