#include "schedule/DecoderShape.h"

#include "schedule/products/Operands.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <numeric>

namespace gpt2c {

bool joinsColumnsOfRanks(const Op &op) {
  return op.is(OpCode::AllGather) || (op.is(OpCode::Slice) && op.operand(0)->def() &&
                                      op.operand(0)->def()->is(OpCode::AllGather));
}

Value *sourceOf(Value *v) {
  while (v->def() && (v->def()->is(OpCode::Reshape) || v->def()->is(OpCode::Cast) ||
                      joinsColumnsOfRanks(*v->def())))
    v = v->def()->operand(0);
  return v;
}

int64_t weightGroupOf(const Op &product) {
  const Value *w = product.operand(ops::Linear::W);
  const int64_t k = lastDim(w);
  if (!product.is(OpCode::QuantizedLinear))
    return 0;
  const int64_t group = groupOf(product.operand(ops::QuantizedLinear::WScale), k);
  return group == 0 && infoOf(w->type.dtype).bits < 8 ? k : group;
}

namespace {

/// The ops of a chain have one order: each needs the one before.
class ChainReader {
public:
  explicit ChainReader(Function &decode) {
    for (auto &op : decode.ops())
      if (op->is(OpCode::AllGather))
        s_.ranks = op->intAttr("ranks");
      else if (!op->is(OpCode::Constant) && !op->is(OpCode::Reshape) && !op->is(OpCode::Cast) &&
               !joinsColumnsOfRanks(*op) && !op->info().has(Terminator))
        ops_.push_back(op.get());
  }

  llvm::Expected<DecoderShape> run() {
    s_.embed = take(OpCode::Embed);
    if (!s_.embed)
      return failure();
    x_ = s_.embed->result();
    s_.type = x_->type.dtype;
    s_.width = widthOf(x_);
    while (at_ + 3 < ops_.size() && why_.empty())
      layer();
    if (why_.empty() && !s_.layers.empty())
      logits();
    if (!why_.empty() || s_.layers.empty())
      return failure();
    return std::move(s_);
  }

private:
  static int64_t widthOf(const Value *v) { return v->type.shape.back().constant().value_or(0); }

  llvm::Error failure() const {
    std::string where = at_ < ops_.size() ? ops_[at_]->describe() + ": " : "";
    return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                   where + (why_.empty() ? "it is no chain of layers" : why_));
  }
  bool need(bool holds, const char *why) {
    if (!holds && why_.empty())
      why_ = why;
    return why_.empty();
  }

  /// The next op if it is of that kind; null.
  Op *take(OpCode code) { return at_ < ops_.size() && ops_[at_]->is(code) ? ops_[at_++] : nullptr; }
  Op *norm(Value *of) {
    Op *op = at_ < ops_.size() && isNorm(*ops_[at_]) ? ops_[at_++] : nullptr;
    return op && sourceOf(op->operand(ops::LayerNorm::X)) == of ? op : nullptr;
  }
  /// A product of `x`, of which nothing else is made, with that residual, or none.
  Op *product(Value *x, Value *residual, int64_t k) {
    Op *op = take(OpCode::Linear);
    op = op ? op : take(OpCode::QuantizedLinear);
    if (!op || sourceOf(op->operand(ops::Linear::X)) != x || widthOf(op->operand(0)) != k)
      return nullptr;
    Value *added = residualOf(*op);
    if ((added ? sourceOf(added) : nullptr) != residual)
      return nullptr;
    return op;
  }
  /// A product of a layer: its weights are as those of all others.
  Op *layerProduct(Value *x, Value *residual, int64_t k) {
    Op *op = product(x, residual, k);
    if (!op)
      return nullptr;
    const DType weights = op->operand(ops::Linear::W)->type.dtype;
    const int64_t group = weightGroupOf(*op);
    if (products_++ == 0) {
      s_.weights = weights;
      s_.weightGroup = group;
    }
    if (weights != s_.weights || (group == 0) != (s_.weightGroup == 0))
      return nullptr;
    s_.weightGroup = std::gcd(s_.weightGroup, group);
    noteZeros(*op);
    return op;
  }
  void noteZeros(const Op &op) {
    s_.weightZeros |= op.is(OpCode::QuantizedLinear) && op.operand(ops::QuantizedLinear::WZero) &&
                      infoOf(op.operand(ops::Linear::W)->type.dtype).bits == 8;
  }
  bool hasBias(const Op &op) const {
    return op.operand(op.is(OpCode::Linear) ? unsigned(ops::Linear::Bias)
                                            : unsigned(ops::QuantizedLinear::Bias));
  }

  void layer() {
    DecoderLayer l;
    if (!need((l.firstNorm = norm(x_)), "no norm of the layer's rows") ||
        !need((l.qkv = layerProduct(l.firstNorm->result(), nullptr, s_.width)),
              "no product of queries, keys and values"))
      return;
    Value *packed = l.qkv->result();
    if ((l.rope = take(OpCode::Rope))) {
      need(sourceOf(l.rope->operand(ops::Rope::X)) == packed, "it turns other rows");
      packed = l.rope->result();
    }
    l.attention = take(OpCode::AppendAttention);
    if (!need(l.attention && sourceOf(l.attention->operand(ops::AppendAttention::Qkv)) == packed,
              "no attention of the product before"))
      return;
    Value *y = l.attention->result(ops::AppendAttention::Y);
    if (!need((l.projection = layerProduct(y, x_, widthOf(y))), "no projection added to the rows"))
      return;
    x_ = l.projection->result();
    if (!need((l.secondNorm = norm(x_)), "no norm before an MLP") ||
        !need((l.hidden = layerProduct(l.secondNorm->result(), nullptr, s_.width)),
              "no product of hidden columns"))
      return;
    Value *h = l.hidden->result();
    if ((l.gate = take(OpCode::Gated))) {
      need(sourceOf(l.gate->operand(ops::Gated::X)) == h, "it gates other rows");
      h = l.gate->result();
    }
    if (!need((l.output = layerProduct(h, x_, widthOf(h))), "no second product of an MLP"))
      return;
    x_ = l.output->result();
    if (s_.layers.empty())
      describeFirst(l);
    if (need(isLikeFirst(l), "its layer is of another kind than the first"))
      s_.layers.push_back(l);
  }

  void describeFirst(const DecoderLayer &l) {
    const Op &a = *l.attention;
    const Value *kv = a.operand(ops::AppendAttention::Kv);
    s_.heads = a.intAttr("num_heads");
    s_.keyHeads = kv->type.shape[3].constant().value_or(0);
    s_.headDim = widthOf(a.result(ops::AppendAttention::Y)) / s_.heads;
    s_.context = kv->type.shape[4].constant().value_or(0);
    s_.rotary = l.rope ? l.rope->operand(ops::Rope::Cos)->type.shape[1].constant().value_or(0) : 0;
    s_.normed = l.rope && l.rope->operand(ops::Rope::Scale);
    s_.gated = l.gate != nullptr;
    s_.hidden = widthOf(l.output->operand(ops::Linear::X));
    s_.norm = normOf(*l.firstNorm);
    s_.activation = (l.gate ? l.gate : l.hidden)->stringAttr("activation");
  }

  /// Widths and gains of a kernel are those of all layers.
  bool isLikeFirst(const DecoderLayer &l) {
    const int64_t columns = (s_.heads + 2 * s_.keyHeads) * s_.headDim;
    for (const Op *op : {l.qkv, l.projection, l.hidden, l.output})
      s_.bias |= hasBias(*op);
    auto isPlain = [](const Op *op) { return op->stringAttr("activation") == "none"; };
    auto hasGain = [](const Op *norm) { return !isOnes(norm->operand(ops::LayerNorm::Scale)); };
    const DecoderLayer &one = s_.layers.empty() ? l : s_.layers.front();
    const Op *first = one.firstNorm;
    return widthOf(l.qkv->result()) == columns && isPlain(l.qkv) && isPlain(l.projection) &&
           isPlain(l.output) && (!l.gate || isPlain(l.hidden)) && bool(l.gate) == s_.gated &&
           bool(l.rope) == bool(one.rope) &&
           (l.rope && l.rope->operand(ops::Rope::Scale)) == s_.normed &&
           (l.gate ? l.gate : l.hidden)->stringAttr("activation") == s_.activation &&
           widthOf(l.output->operand(ops::Linear::X)) == s_.hidden &&
           widthOf(l.hidden->result()) == (s_.gated ? 2 : 1) * s_.hidden &&
           normOf(*l.firstNorm) == s_.norm && normOf(*l.secondNorm) == s_.norm &&
           hasGain(l.firstNorm) == hasGain(first) && hasGain(l.secondNorm) == hasGain(first);
  }

  void logits() {
    if (!need((s_.finalNorm = norm(x_)), "no norm before the logits") ||
        !need((s_.logits = product(s_.finalNorm->result(), nullptr, s_.width)) &&
                  s_.logits->stringAttr("activation") == "none",
              "no logits") ||
        !need((s_.choice = take(OpCode::ArgMax)) && at_ == ops_.size() &&
                  sourceOf(s_.choice->operand(ops::ArgMax::X)) == s_.logits->result(),
              "no choice from the logits at last"))
      return;
    s_.lastNorm = normOf(*s_.finalNorm);
    s_.lastWeights = s_.logits->operand(ops::Linear::W)->type.dtype;
    s_.lastGroup = weightGroupOf(*s_.logits);
    noteZeros(*s_.logits);
    s_.vocabulary = widthOf(s_.logits->result());
    s_.tokens = widthOf(s_.choice->operand(ops::ArgMax::X));
  }

  std::vector<Op *> ops_;
  size_t at_ = 0;
  DecoderShape s_;
  Value *x_ = nullptr; ///< the rows of the layer that comes next
  int products_ = 0;
  std::string why_;
};

} // namespace

llvm::Expected<DecoderShape> readDecoder(Function &decode) { return ChainReader(decode).run(); }

std::string describe(const DecoderShape &s) {
  std::string weights = dtypeName(s.weights).str();
  if (s.weightGroup > 0)
    weights += " in groups of " + std::to_string(s.weightGroup);
  if (s.lastWeights != s.weights)
    weights += (", of the vocabulary in " + dtypeName(s.lastWeights)).str();
  std::string out =
      llvm::formatv("{0} layers of {1} columns in {2}, weights in {3}; {4} heads of {5}",
                    s.layers.size(), s.width, dtypeName(s.type), weights, s.heads, s.headDim)
          .str();
  if (s.sharesKeys())
    out += llvm::formatv(" that share {0} of keys", s.keyHeads).str();
  if (s.rotary)
    out += llvm::formatv(", {0} pairs turned", s.rotary).str();
  if (s.normed)
    out += ", normed";
  out += s.norm == NormKind::Rms ? "; RMS norms" : "; layer norms";
  return out + llvm::formatv("; MLP of {0} columns, {1}{2}; vocabulary of {3}", s.hidden,
                             s.activation, s.gated ? " gate" : "", s.vocabulary)
                   .str();
}

DecoderWeights DecoderWeights::of(const Function &decode) {
  DecoderWeights all;
  int64_t last = 0, layers = 0;
  for (auto &op : decode.ops()) {
    const bool attention = op->is(OpCode::AppendAttention);
    layers += attention;
    all.quantised |= op->is(OpCode::QuantizedLinear);
    all.grouped |= op->is(OpCode::Rope) || op->is(OpCode::Gated) ||
                   (attention && op->operand(ops::AppendAttention::Kv)->type.shape[3] !=
                                     Dim(op->intAttr("num_heads")));
    if (!op->is(OpCode::Linear) && !op->is(OpCode::QuantizedLinear))
      continue;
    const Type &w = op->operand(ops::Linear::W)->type;
    all.bytesOfLayer += last; // those of the last one are the vocabulary's
    last = storedBytes(w).constant().value_or(0);
  }
  all.bytesOfLayer /= std::max<int64_t>(layers, 1);
  return all;
}

} // namespace gpt2c
