// com.microsoft GroupQueryAttention: norms of heads, rotation, an own cache of keys and values,
// attention with shared key heads.
//
// Row b of the batch has `lengths[b]` tokens once the S new ones are there, `before[b]` of them in
// the cache: none for a first prompt (S is the longest row, total_sequence_length), else lengths[b]
// - S. New token s of row b stands at position before[b] + s. The present keys are those of the
// cache in front of that, then the new ones, then zeros up to total_sequence_length rows. A cache
// that is a longer buffer is read so, too, but the present tensors have total_sequence_length rows.
#include "frontend/Builders.h"
#include "frontend/ops/AttentionParts.h"
#include "ir/Decimal.h"

#include <cmath>

namespace gpt2c::onnxops {

namespace {

class GroupQueryLowering {
public:
  explicit GroupQueryLowering(NodeLowering &n) : n(n) {}

  void run() {
    query_ = n.in(0);
    heads_ = n.requiredInt("num_heads");
    shared_ = n.requiredInt("kv_num_heads");
    refuse();
    if (n.failed() || !findHeads())
      return;
    normaliseHeads();
    findPositions();
    turn();
    Value *k = present(k_, 3), *v = present(v_, 4);
    n.out(1, k);
    n.out(2, v);
    Value *scores = maskedScores(repeatHeads(n, k, heads_));
    Value *p = probabilities(scores);
    n.out(joinHeads(n, n.matmul(p, repeatHeads(n, v, heads_))));
  }

private:
  void refuse() {
    auto absent = [&](unsigned input, const char *name) {
      if (n.has(input))
        n.unsupported(llvm::Twine(name) + " is not supported");
    };
    auto unset = [&](const char *attribute) {
      if (n.intAttr(attribute, 0))
        n.unsupported(llvm::Twine(attribute) + " is not supported");
    };
    absent(12, "k_scale");
    absent(13, "v_scale");
    absent(16, "query_seqlens");
    unset("qk_output");
    unset("sliding_window_cache");
    unset("kv_cache_bit_width");
    for (const char *type : {"k_quant_type", "v_quant_type"})
      if (std::string t = n.stringAttr(type, "NONE"); t != "NONE")
        n.unsupported(llvm::Twine(type) + " " + t + " is not supported");
    if (n.wants(3))
      n.unsupported("output_qk is not supported");
    if (n.has(1) != n.has(2))
      n.invalid("key and value must be given together");
    if (n.has(3) != n.has(4))
      n.invalid("past_key and past_value must be given together");
    if (n.has(14) != n.has(15))
      n.invalid("q_norm_weight and k_norm_weight must be given together");
    bool causal = n.intAttr("causal", 1);
    if (!causal && n.intAttr("local_window_size", -1) >= 0)
      n.invalid("local_window_size without causal");
    if (n.failed())
      return;
    if (query_->type.rank() != 3)
      n.invalid("the query must have rank 3, not " + llvm::Twine(query_->type.rank()));
    if (heads_ < 1 || shared_ < 1 || heads_ % shared_ != 0)
      n.invalid(llvm::Twine(heads_) + " query heads cannot share " + llvm::Twine(shared_) +
                " key heads");
  }

  /// q, k and v as [b, s, heads, d], from tensors of their own or from one with all columns.
  bool findHeads() {
    auto width = NodeLowering::staticDim(query_, 2);
    if (!width)
      return n.unsupported("the query's width, " + query_->type.shape[2].str() + ", is not known");
    bool packed = !n.has(1);
    int64_t parts = packed ? heads_ + 2 * shared_ : heads_;
    if (*width == 0 || *width % parts != 0)
      return n.invalid("a width of " + llvm::Twine(*width) + " does not split into " +
                       llvm::Twine(parts) + " heads");
    size_ = *width / parts;
    auto columns = [&](int64_t from, int64_t count) {
      return n.slice(query_, 2, from * size_, (from + count) * size_);
    };
    q_ = headsOfTokens(n, packed ? columns(0, heads_) : query_, heads_);
    k_ = headsOfTokens(n, packed ? columns(heads_, shared_) : n.in(1), shared_);
    v_ = headsOfTokens(n, packed ? columns(heads_ + shared_, shared_) : n.in(2), shared_);
    if (n.failed())
      return false;
    for (Value *x : {k_, v_})
      if (NodeLowering::staticDim(x, 3) != size_)
        return n.invalid("keys and values need heads of " + llvm::Twine(size_) + ", not " +
                         x->type.shape[3].str());
    return true;
  }

  /// Qwen3: an RMS norm of each head of the queries and keys.
  void normaliseHeads() {
    if (!n.has(14))
      return;
    double both = n.floatAttr("qk_norm_epsilon", 1e-6f);
    auto norm = [&](Value *x, unsigned weight, const char *epsilon) {
      return n.emit(OpCode::RmsNorm, {x, n.in(weight)},
                    {{"epsilon", decimalOf(float(n.floatAttr(epsilon, both)))}});
    };
    q_ = norm(q_, 14, "q_norm_epsilon");
    k_ = norm(k_, 15, "k_norm_epsilon");
  }

  Value *asScalar(Value *v) {
    return n.cast(n.emit(OpCode::Reshape, {v}, {{"shape", Dims()}}), DType::I64);
  }

  /// lengths_ and before_ are [b, 1], positions_ [b, s]; without a cache every row starts at 0.
  void findPositions() {
    Value *last = n.cast(n.reshape(n.in(5), {-1}), DType::I64);
    Value *lengths = n.add(last, n.scalar(1, DType::I64));
    lengths_ = n.unsqueeze(lengths, {1});
    total_ = asScalar(n.in(6));
    Value *seq = asScalar(n.sizeOf(query_, 1));
    first_ = n.equal(total_, seq);
    tokens_ = n.unsqueeze(n.iota(n.sizeOf(query_, 1)), {0});
    Value *none = n.scalar(0, DType::I64);
    before_ = n.has(3) ? n.where(first_, none, n.sub(lengths_, seq)) : none;
    positions_ = n.add(before_, tokens_);
    if (n.has(3))
      findRows(seq);
  }

  /// rows_ is [b, total, 1]: where each present key lies in (cache, new tokens, zeros). Row j comes
  /// from the cache when j < before, else it is new token j - before.
  void findRows(Value *seq) {
    Value *j = n.unsqueeze(n.iota(n.reshape(total_, {1})), {0});
    Value *token = n.emit(OpCode::Min, {n.sub(j, before_), seq});
    Value *cached = n.emit(OpCode::Less, {j, before_});
    Value *behind = n.add(token, asScalar(n.sizeOf(n.in(3), 2)));
    rows_ = n.unsqueeze(n.where(cached, j, behind), {2});
  }

  /// RoPE. Given ids replace the positions; a first prompt reads their first element alone.
  void turn() {
    if (!n.intAttr("do_rotary", 0) || n.failed())
      return;
    Value *cos = n.in(7), *sin = n.in(8);
    if (n.failed())
      return;
    auto pairs = NodeLowering::staticDim(cos, -1);
    if (cos->type.rank() != 2 || sin->type.rank() != 2)
      return void(n.invalid("tables of cosines and sines must have rank 2"));
    if (!pairs)
      return void(n.unsupported("the width of the tables is not known"));
    Value *at = positions_;
    if (Value *ids = n.optional(9)) {
      Value *corner = n.slice(n.slice(ids, 0, 0, 1), 1, 0, 1);
      at = n.where(first_, n.add(corner, tokens_), ids);
    }
    cos = n.unsqueeze(tableRows(n, cos, at), {2});
    sin = n.unsqueeze(tableRows(n, sin, at), {2});
    bool interleaved = n.intAttr("rotary_interleaved", 0);
    q_ = rotate(n, q_, cos, sin, *pairs, interleaved);
    k_ = rotate(n, k_, cos, sin, *pairs, interleaved);
  }

  /// [b, heads, total, d]
  Value *present(Value *fresh, unsigned pastInput) {
    if (n.failed() || !n.has(pastInput))
      return n.transpose(fresh, {0, 2, 1, 3});
    Value *past = n.transpose(n.in(pastInput), {0, 2, 1, 3});
    Value *zero = n.scalarLike(0, fresh);
    Value *shape = n.concat({n.sizeOf(fresh, 0), n.ints({1, shared_, size_})}, 0);
    Value *rows = n.concat({past, fresh, n.emit(OpCode::Expand, {zero, shape})}, 1);
    Value *picked = n.emit(OpCode::GatherND, {rows, rows_}, {{"batch_dims", int64_t(1)}});
    return n.transpose(picked, {0, 2, 1, 3});
  }

  /// [b, heads, s, total]
  Value *maskedScores(Value *k) {
    double scale = n.floatAttr("scale", 0);
    if (scale == 0)
      scale = 1 / std::sqrt(double(size_));
    Value *queries = n.transpose(q_, {0, 2, 1, 3});
    Value *scores = n.matmul(queries, n.transpose(k, {0, 1, 3, 2}));
    scores = softcap(n, n.mul(scores, n.scalarLike(scale, scores)), n.floatAttr("softcap", 0));
    if (Value *bias = n.optional(10))
      scores = n.add(scores, bias);
    Value *key = n.iota(n.sizeOf(k, 2));
    if (!n.intAttr("causal", 1))
      return hideScores(n, scores, n.emit(OpCode::Less, {key, n.unsqueeze(lengths_, {2, 3})}));
    Value *query = n.unsqueeze(positions_, {1, 3});
    Value *visible = n.emit(OpCode::LessEqual, {key, query});
    int64_t window = n.intAttr("local_window_size", -1);
    if (window > 0) {
      Value *oldest = n.sub(query, n.scalar(double(window), DType::I64));
      visible = n.emit(OpCode::And, {visible, n.emit(OpCode::Greater, {key, oldest})});
    }
    return hideScores(n, scores, visible);
  }

  /// Softmax; a sink is one more key for each head, with the score given (0 for smooth_softmax) and
  /// no value.
  Value *probabilities(Value *scores) {
    Value *sinks = n.optional(11);
    if (n.failed() || (!sinks && n.intAttr("smooth_softmax", 0) <= 0))
      return n.softmax(scores);
    sinks = sinks ? n.reshape(sinks, {1, heads_, 1, 1}) : n.scalarLike(0, scores);
    Value *shape =
        n.concat({n.emit(OpCode::Shape, {scores}, {{"start", int64_t(0)}, {"end", int64_t(3)}}),
                  n.ints({1})},
                 0);
    Value *column = n.emit(OpCode::Expand, {sinks, shape});
    return n.slice(n.softmax(n.concat({scores, column}, 3)), 3, 0, -1);
  }

  NodeLowering &n;
  int64_t heads_ = 0, shared_ = 0, size_ = 0;
  Value *query_ = nullptr, *q_ = nullptr, *k_ = nullptr, *v_ = nullptr;
  Value *lengths_ = nullptr, *total_ = nullptr, *first_ = nullptr;
  Value *tokens_ = nullptr, *before_ = nullptr, *positions_ = nullptr, *rows_ = nullptr;
};

} // namespace

void groupQueryAttention(NodeLowering &n) { GroupQueryLowering(n).run(); }

} // namespace gpt2c::onnxops
