#include "ir/ops/AppendAttention.h"

#include "ir/ops/AttentionHead.h"
#include "ir/ops/Common.h"
#include "ir/ops/PagedAttention.h"
#include "ir/ops/StateRows.h"
#include "ir/ops/Workers.h"

#include <algorithm>

namespace gpt2c {

llvm::Error checkKeyHeads(InferContext &c, int64_t heads, const Dim &stateHeads) {
  if (heads <= 0)
    return c.error("num_heads must be positive");
  auto keyHeads = stateHeads.constant();
  if (!keyHeads)
    return c.unify(stateHeads, Dim(heads)).takeError();
  if (*keyHeads <= 0 || heads % *keyHeads != 0)
    return c.error(llvm::Twine(heads) + " heads cannot share " + llvm::Twine(*keyHeads) +
                   " heads of the state evenly");
  return llvm::Error::success();
}

llvm::Expected<Type> inferAppendAttention(InferContext &c, unsigned length) {
  using enum ops::AppendAttention::Operand;
  using enum ops::AppendAttention::Result;
  if (c.rank(Kv) != 6 || c.rank(Qkv) != 3 || c.rank(Past) != 1)
    return c.error("expects kv[L, 2, slots, G, C, d], qkv[b, s, (H+2G)*d] and past[b]");
  const int64_t scale = kvScaleBytes(c.dtype(Kv));
  if ((!scale && !isFloat(c.dtype(Kv))) || !isFloat(c.dtype(Qkv)) || !isInteger(c.dtype(Past)))
    return c.error(
        "expects kv of i8, f8e4m3 or floating-point elements, floating-point qkv and an integer "
        "past");
  auto layers = c.shape(Kv)[0].constant();
  int64_t layer = c.op().intAttr("layer"), heads = c.op().intAttr("num_heads");
  if (layer < 0 || (layers && layer >= *layers))
    return c.error("there is no layer " + llvm::Twine(layer));
  if (c.op().intAttr("window") < 0)
    return c.error("a window is a number of keys");
  if (llvm::Error e = checkKeyHeads(c, heads, c.shape(Kv)[3]))
    return e;
  Dim row = c.shape(Kv)[5], d = row - Dim(scale), width = Dim(heads) * d;
  if (auto packed = c.unify(width + Dim(2) * c.shape(Kv)[3] * d, c.shape(Qkv)[2]); !packed)
    return packed.takeError();
  if (c.has(KeyMask) && (c.rank(KeyMask) != 2 || !isInteger(c.dtype(KeyMask))))
    return c.error("expects key_mask[b, t] of integers");
  c.setResult(NextKv, c.dtype(Kv), Shape(c.shape(Kv)));
  if (!c.has(length))
    return Type{c.dtype(Qkv), {c.shape(Qkv)[0], c.shape(Qkv)[1], width}};
  if (c.rank(length) != 1 || !isInteger(c.dtype(length)))
    return c.error("expects length[b] of integers");
  auto batch = c.unify(c.shape(Qkv)[0], c.shape(length)[0]);
  if (!batch)
    return batch.takeError();
  return Type{c.dtype(Qkv), {*batch, width}};
}

namespace {

/// Keys, or values, of one head of one sequence.
class HeadState {
public:
  HeadState(Tensor &kv, int64_t layer, int64_t part, int64_t slot, int64_t head)
      : rows_(kv.dtype(), kv.dim(4), kv.dim(5)) {
    int64_t index = ((layer * 2 + part) * kv.dim(2) + slot) * kv.dim(3) + head;
    block_ = static_cast<char *>(kv.raw()) + index * rows_.blockBytes();
  }

  /// Row `position` from the elements of `from` that start at element `at`.
  template <typename T> void write(int64_t position, const Tensor &from, int64_t at) {
    rows_.write<T>(block_, position, from, at);
  }
  /// The first `count` rows of d elements as T, converted into `room` unless they are stored as T.
  template <typename T> const T *rows(int64_t count, int64_t d, std::vector<T> &room) const {
    room.resize(count * d);
    return rows_.read<T>(block_, count, room.data());
  }

private:
  StateRows rows_;
  char *block_;
};

/// What a thread keeps from one head to the next.
template <typename T> struct HeadRoom {
  std::vector<T> keys, values, scratch;
  KeyRun<T> run;
};

/// Of all queries, or of the one at length[b] - 1 of each sequence.
template <typename T>
llvm::Expected<Tensor> attend(EvalContext &c, Tensor kv, const Tensor &qkv,
                              const std::vector<int64_t> *length) {
  using enum ops::AppendAttention::Operand;
  int64_t batch = qkv.dim(0), seq = qkv.dim(1), packed = qkv.dim(2),
          layer = c.op().intAttr("layer"), heads = c.op().intAttr("num_heads");
  int64_t keyHeads = kv.dim(3), context = kv.dim(4), d = packed / (heads + 2 * keyHeads);
  int64_t width = heads * d, group = heads / keyHeads;
  llvm::SmallVector<int64_t, 8> past(c.input(Past).count());
  for (size_t i = 0; i < past.size(); ++i)
    past[i] = c.input(Past).asInt(int64_t(i));
  std::vector<int64_t> mask;
  int64_t masked = 0;
  if (c.has(KeyMask)) {
    using enum ops::AppendAttention::Operand;
    mask = c.ints(KeyMask);
    masked = c.input(KeyMask).dim(1);
  }
  for (int64_t b = 0; b < batch; ++b)
    if (past[b] < 0 || past[b] + seq > context || (c.has(KeyMask) && past[b] + seq > masked))
      return c.error("positions " + llvm::Twine(past[b]) + " to " + llvm::Twine(past[b] + seq) +
                     " exceed the context or the mask");
  for (int64_t b = 0; length && b < batch; ++b)
    if ((*length)[b] < 1 || (*length)[b] > seq)
      return c.error("length " + llvm::Twine((*length)[b]) + " is out of range");
  Tensor out = length ? Tensor(DTypeOf<T>::value, {batch, width})
                      : Tensor(DTypeOf<T>::value, {batch, seq, width});
  const Tensor wide = qkv.cast(DTypeOf<T>::value);
  T *result = out.data<T>();
  const auto form = scoreForm<T>(c.op());
  for (int64_t i = 0; i < batch * keyHeads; ++i) {
    const int64_t b = i / keyHeads, keyHead = i % keyHeads;
    HeadState keys(kv, layer, 0, b, keyHead), values(kv, layer, 1, b, keyHead);
    for (int64_t s = 0; s < seq; ++s) {
      int64_t at = (b * seq + s) * packed + width + keyHead * d;
      keys.write<T>(past[b] + s, qkv, at);
      values.write<T>(past[b] + s, qkv, at + keyHeads * d);
    }
  }
  // Heads of a group read the same keys, which are converted once.
  const int64_t together = kv.dtype() == DTypeOf<T>::value ? 1 : group;
  const int64_t queries = length ? 1 : seq;
  const int64_t longest = past.empty() ? 0 : *std::max_element(past.begin(), past.end());
  const double work = double(batch * heads * queries * d) * double(longest + seq);
  const int64_t window = c.op().intAttr("window");
  auto attendHead = [&](int64_t b, int64_t h, HeadRoom<T> &room) {
    const int64_t first = length ? (*length)[b] - 1 : 0;
    const int64_t count = past[b] + (length ? first + 1 : seq);
    if (h % together == 0) {
      Tensor state = kv;
      room.run = {HeadState(state, layer, 0, b, h / group).template rows<T>(count, d, room.keys),
                  HeadState(state, layer, 1, b, h / group).template rows<T>(count, d, room.values),
                  count, d};
    }
    attentionHead<T>(
        {wide.data<T>() + (b * seq + first) * packed + h * d,
         result + (b * queries * heads + h) * d, queries, packed, width},
        room.run, d, form,
        {true, past[b] + first, window, mask.empty() ? nullptr : mask.data() + b * masked},
        room.scratch);
  };
  const int64_t all = batch * heads / together, parts = partsOf(work, all);
  forParts(parts, [&](int64_t part) {
    static thread_local HeadRoom<T> room;
    for (int64_t i = all * part / parts * together; i < all * (part + 1) / parts * together; ++i)
      attendHead(i / heads, i % heads, room);
  });
  return out;
}

} // namespace

llvm::Expected<Tensor> evalAppendAttention(EvalContext &c, unsigned lengthOperand) {
  using enum ops::AppendAttention::Operand;
  using enum ops::AppendAttention::Result;
  const Tensor &kv = c.input(Kv), &qkv = c.input(Qkv);
  std::vector<int64_t> lengths;
  const std::vector<int64_t> *length = nullptr;
  if (c.has(lengthOperand)) {
    lengths = c.ints(lengthOperand);
    length = &lengths;
    if (static_cast<int64_t>(lengths.size()) != qkv.dim(0))
      return c.error("needs one length per sequence");
  }
  int64_t batch = qkv.dim(0), d = kv.dim(5) - kvScaleBytes(kv.dtype());
  int64_t heads = c.op().intAttr("num_heads"), keyHeads = kv.dim(3);
  if (batch > kv.dim(2) || keyHeads == 0 || heads % keyHeads != 0 ||
      qkv.dim(2) != (heads + 2 * keyHeads) * d || c.input(Past).count() != batch ||
      kv.dim(1) != 2 || c.op().intAttr("layer") >= kv.dim(0) ||
      (c.has(KeyMask) && c.input(KeyMask).dim(0) != batch))
    return c.error("shapes do not fit");
  c.output(NextKv) = kv;
  return qkv.dtype() == DType::F64 ? attend<double>(c, kv, qkv, length)
                                   : attend<float>(c, kv, qkv, length);
}

/// Every position of the context counts: how many are filled is known at run time only.
Cost appendAttentionCost(const Op &op) {
  using enum ops::AppendAttention::Operand;
  using enum ops::AppendAttention::Result;
  if (op.is(OpCode::AppendAttention) && isPaged(op))
    return pagedAttentionCost(op);
  const Type &kv = op.operand(Kv)->type, &qkv = op.operand(Qkv)->type, &y = op.result(Y)->type;
  Dim positions = kv.shape[4];
  return {Dim(4) * elementCount(y.shape) * positions,
          Dim(byteSize(qkv.dtype)) * elementCount(qkv.shape) +
              Dim(byteSize(y.dtype)) * elementCount(y.shape) +
              Dim(2 * byteSize(kv.dtype)) * y.shape[0] * kv.shape[3] * kv.shape[5] * positions};
}

static llvm::Error inferAppendAttention(InferContext &c) {
  using enum ops::AppendAttention::Operand;
  using enum ops::AppendAttention::Result;
  if (isPaged(c.op()))
    return inferPagedAttention(c);
  auto y = inferAppendAttention(c, Length);
  if (!y)
    return y.takeError();
  c.setResult(Y, y->dtype, y->shape);
  return llvm::Error::success();
}

static llvm::Error evalAppendAttention(EvalContext &c) {
  using enum ops::AppendAttention::Operand;
  using enum ops::AppendAttention::Result;
  if (isPaged(c.op()))
    return evalPagedAttention(c);
  auto y = evalAppendAttention(c, Length);
  if (!y)
    return y.takeError();
  c.output(Y) = *y;
  return llvm::Error::success();
}

const OpInfo opAppendAttention = {
    .code = OpCode::AppendAttention,
    .mnemonic = "append_attention",
    .summary =
        "(kv', y): kv_append of the keys and values in qkv, then cached_attention of its queries. "
        "With length only the last token of each sequence has a query, number length[b] - 1, and "
        "y is gather_last of what it is without. qkv has H heads of queries, then G of keys and G "
        "of "
        "values. "
        "window as attention has it. A state in i8 or f8e4m3 has rows of d + 4 bytes: a head's C "
        "rows of d elements, quantised each with a scale of its own, come first, then the C scales "
        "in f32; in pages the P rows of a head in a page, then theirs. "
        "With paged, rows of any sequences are appended and attend: kv[pages, L, 2, G, P, d], "
        "qkv[1, rows, ...], in the place of past pieces[n, 4] and of key_mask tables[t, m]. A "
        "piece "
        "{row, count, position, table} says that rows row .. row + count - 1 are tokens position "
        ".. position + count - 1 of the sequence whose token t is number t mod P of page "
        "tables[table, t / P]; one of count 0 says nothing, and rows without a piece have any y. "
        "All pieces are appended first, then each row sees the keys of its sequence up to its own, "
        "so a sequence may be cut anywhere. No two pieces have a row; those of a table are one "
        "behind the other, in pieces, in rows and in positions; and no page that a piece writes is "
        "in another table",
    .operands = {{"kv"},
                 {"qkv"},
                 {"past"},
                 {"key_mask", OperandSpec::Optional},
                 {"length", OperandSpec::Optional}},
    .attrs = {{"layer", AttrKind::Int},
              {"num_heads", AttrKind::Int},
              {"scale", AttrKind::Float},
              windowAttr(),
              softCapAttr(),
              {"paged", AttrKind::Bool, Attr(false), "the state is in pages"}},
    .numResults = 2,
    .traits = InPlace | OwnStorage,
    .infer = inferAppendAttention,
    .eval = evalAppendAttention,
    .cost = appendAttentionCost,
};

} // namespace gpt2c
