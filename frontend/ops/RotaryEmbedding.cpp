// RotaryEmbedding of ONNX (opset 23) and of ONNX Runtime. Su et al. 2021, RoFormer.
#include "frontend/Builders.h"
#include "frontend/ops/AttentionParts.h"

namespace gpt2c::onnxops {

namespace {

class RotaryLowering {
public:
  explicit RotaryLowering(NodeLowering &n) : n(n) {}

  /// Inputs: x, cos, sin, position ids? With ids the tables are [positions, r], else [b, s, r].
  void onnx() {
    Value *x = n.in(0), *cos = n.in(1), *sin = n.in(2), *ids = n.optional(3);
    int64_t heads = n.intAttr("num_heads", 0), rotated = n.intAttr("rotary_embedding_dim", 0);
    if (n.failed() || !checkTables(cos, sin, ids ? 2 : 3))
      return;
    if (ids && ids->type.rank() != 2)
      return void(n.invalid("position_ids must have rank 2, not " + llvm::Twine(ids->type.rank())));
    if (x->type.rank() == 3 && heads < 1)
      return void(n.invalid("attribute 'num_heads' must be given for an input of rank 3"));
    if (ids)
      cos = tableRows(n, cos, ids), sin = tableRows(n, sin, ids);
    apply(x, cos, sin, heads, rotated);
  }

  /// Inputs: x, position ids [b, s] or the first position [1], tables [positions, r]. Without
  /// rotary_embedding_dim whole heads are turned, and the tables tell their size.
  void contrib() {
    Value *x = n.in(0), *ids = n.in(1), *cos = n.in(2), *sin = n.in(3);
    int64_t heads = n.intAttr("num_heads", 0), rotated = n.intAttr("rotary_embedding_dim", 0);
    if (n.intAttr("is_packed_batching", 0))
      n.unsupported("is_packed_batching is not supported");
    if (n.floatAttr("scale", 1) != 1)
      n.unsupported("a scale other than 1 is not supported");
    if (n.failed() || !checkTables(cos, sin, 2))
      return;
    auto pairs = NodeLowering::staticDim(cos, 1), width = NodeLowering::staticDim(x, 2);
    if (rotated > 0 && heads < 1)
      return void(n.invalid("rotary_embedding_dim without num_heads"));
    if (x->type.rank() == 3 && rotated <= 0) {
      if (!pairs || !width)
        return void(n.unsupported("the width of the input or of the tables is not known"));
      heads = *pairs > 0 ? *width / (2 * *pairs) : 0;
      if (heads * 2 * *pairs != *width || heads == 0)
        return void(n.invalid("a width of " + llvm::Twine(*width) +
                              " is not made of heads of twice the tables' " + llvm::Twine(*pairs)));
    }
    unsigned rank = ids->type.rank();
    if (rank != 1 && rank != 2)
      return void(n.invalid("position_ids must have rank 1 or 2, not " + llvm::Twine(rank)));
    if (rank == 1) {
      Value *tokens = n.iota(n.sizeOf(x, x->type.rank() == 3 ? 1 : 2));
      ids = n.unsqueeze(n.add(n.cast(ids, DType::I64), tokens), {0});
    }
    Value *cosines = tableRows(n, cos, ids), *sines = tableRows(n, sin, ids);
    apply(x, cosines, sines, heads, rotated);
  }

private:
  bool checkTables(Value *cos, Value *sin, unsigned rank) {
    for (Value *table : {cos, sin})
      if (table->type.rank() != rank)
        n.invalid("tables of cosines and sines must have rank " + llvm::Twine(rank) + ", not " +
                  llvm::Twine(table->type.rank()));
    return !n.failed();
  }

  /// x is [b, s, heads * d] or [b, h, s, d], the tables are [b, s, r] or [1, s, r].
  void apply(Value *x, Value *cos, Value *sin, int64_t heads, int64_t rotated) {
    if (n.failed())
      return;
    auto pairs = NodeLowering::staticDim(cos, 2);
    if (!pairs)
      return void(n.unsupported("the width of the tables is not known"));
    if (x->type.rank() != 3 && x->type.rank() != 4)
      return void(n.invalid("an input of rank " + llvm::Twine(x->type.rank())));
    bool packed = x->type.rank() == 3;
    Value *parts = packed ? headsOfTokens(n, x, heads) : x;
    if (n.failed())
      return;
    auto size = NodeLowering::staticDim(parts, 3);
    int64_t whole = rotated > 0 ? rotated : size.value_or(2 * *pairs);
    if (whole % 2 != 0 || whole != 2 * *pairs)
      return void(n.invalid("tables of " + llvm::Twine(*pairs) + " pairs where " +
                            llvm::Twine(whole) + " elements of each head are to be turned"));
    // Broadcast over the heads.
    int64_t headAxis = packed ? 2 : 1;
    cos = n.unsqueeze(cos, {headAxis}), sin = n.unsqueeze(sin, {headAxis});
    Value *y = rotate(n, parts, cos, sin, *pairs, n.intAttr("interleaved", 0));
    if (!packed || n.failed())
      return n.out(y);
    auto width = NodeLowering::staticDim(x, 2);
    n.out(n.reshape(y, {0, 0, width ? *width : -1}));
  }

  NodeLowering &n;
};

} // namespace

void rotaryEmbedding(NodeLowering &n) { RotaryLowering(n).onnx(); }

void contribRotaryEmbedding(NodeLowering &n) { RotaryLowering(n).contrib(); }

} // namespace gpt2c::onnxops
