#include "ir/ops/PagedAttention.h"

#include "ir/ops/AppendAttention.h"
#include "ir/ops/AttentionHead.h"
#include "ir/ops/Common.h"
#include "ir/ops/StateRows.h"
#include "ir/ops/Workers.h"

#include <algorithm>
#include <utility>

namespace gpt2c {

static constexpr unsigned Kv = ops::AppendAttention::Kv, Qkv = ops::AppendAttention::Qkv,
                          Pieces = ops::AppendAttention::Past,
                          Tables = ops::AppendAttention::KeyMask;

bool isPaged(const Op &op) { return op.boolAttr("paged"); }

llvm::Error inferPagedAttention(InferContext &c) {
  using enum ops::AppendAttention::Result;
  if (!c.has(Tables) || c.has(ops::AppendAttention::Length))
    return c.error("takes tables, and no lengths, with a state in pages");
  if (c.rank(Kv) != 6 || c.rank(Qkv) != 3 || c.rank(Pieces) != 2 || c.rank(Tables) != 2)
    return c.error("expects kv[pages, L, 2, G, P, d], qkv[1, rows, (H+2G)*d], pieces[n, 4] and "
                   "tables[t, pages of a sequence]");
  const int64_t scale = kvScaleBytes(c.dtype(Kv));
  if ((!scale && !isFloat(c.dtype(Kv))) || !isFloat(c.dtype(Qkv)) || !isInteger(c.dtype(Pieces)) ||
      !isInteger(c.dtype(Tables)))
    return c.error(
        "expects kv of i8, f8e4m3 or floating-point elements, floating-point qkv, pieces "
        "and tables of integers");
  const Dim expected[] = {Dim(1), Dim(AttentionPiece::words), Dim(2)};
  const Dim given[] = {c.shape(Qkv)[0], c.shape(Pieces)[1], c.shape(Kv)[2]};
  for (auto [want, got] : llvm::zip_equal(expected, given))
    if (auto same = c.unify(want, got); !same)
      return same.takeError();
  auto layers = c.shape(Kv)[1].constant();
  int64_t layer = c.op().intAttr("layer"), heads = c.op().intAttr("num_heads");
  if (layer < 0 || (layers && layer >= *layers))
    return c.error("there is no layer " + llvm::Twine(layer));
  if (c.op().intAttr("window") < 0)
    return c.error("a window is a number of keys");
  if (llvm::Error e = checkKeyHeads(c, heads, c.shape(Kv)[3]))
    return e;
  Dim d = c.shape(Kv)[5] - Dim(scale), width = Dim(heads) * d;
  if (auto packed = c.unify(width + Dim(2) * c.shape(Kv)[3] * d, c.shape(Qkv)[2]); !packed)
    return packed.takeError();
  c.setResult(NextKv, c.dtype(Kv), Shape(c.shape(Kv)));
  c.setResult(Y, c.dtype(Qkv), {Dim(1), c.shape(Qkv)[1], width});
  return llvm::Error::success();
}

namespace {

/// The state in pages, of one layer.
class PagedState {
public:
  PagedState(Tensor &kv, int64_t layer)
      : rows_(kv.dtype(), kv.dim(4), kv.dim(5)), layers_(kv.dim(1)), heads_(kv.dim(3)),
        layer_(layer), bytes_(static_cast<char *>(kv.raw())) {}

  int64_t tokens() const { return rows_.tokens(); }
  /// Keys (0) or values (1) of a head in a page.
  char *block(int64_t page, int64_t part, int64_t head) const {
    const int64_t of = ((page * layers_ + layer_) * 2 + part) * heads_ + head;
    return bytes_ + of * rows_.blockBytes();
  }
  const StateRows &rows() const { return rows_; }

private:
  StateRows rows_;
  int64_t layers_, heads_, layer_;
  char *bytes_;
};

/// An error where a page that a piece writes is in another table.
llvm::Error checkPages(const EvalContext &c, llvm::ArrayRef<AttentionPiece> pieces) {
  const Tensor &kv = c.input(Kv), &tables = c.input(Tables);
  std::vector<int64_t> writer(kv.dim(0), -1);
  auto pageOf = [&](const AttentionPiece &p, int64_t at) {
    return tables.asInt(p.table * tables.dim(1) + at);
  };
  for (const AttentionPiece &p : pieces)
    for (int64_t at = p.position / kv.dim(4); at * kv.dim(4) < p.position + p.count; ++at)
      writer[pageOf(p, at)] = p.table;
  for (const AttentionPiece &p : pieces)
    for (int64_t at = 0; at * kv.dim(4) < p.position + p.count; ++at)
      if (int64_t by = writer[pageOf(p, at)]; by >= 0 && by != p.table)
        return c.error("page " + llvm::Twine(pageOf(p, at)) + " of table " + llvm::Twine(p.table) +
                       " is written by a piece of table " + llvm::Twine(by));
  return llvm::Error::success();
}

/// The pieces that have tokens; an error where one reaches outside of rows, tables or pages, does
/// not go on where the piece before it of its table ends, or has a page that one of another table
/// writes.
llvm::Expected<std::vector<AttentionPiece>> piecesOf(const EvalContext &c) {
  const Tensor &kv = c.input(Kv), &tables = c.input(Tables), &words = c.input(Pieces);
  const int64_t rows = c.input(Qkv).dim(1), room = tables.dim(1) * kv.dim(4);
  std::vector<AttentionPiece> pieces;
  std::vector<bool> taken(rows);
  std::vector<int64_t> lastOf(tables.dim(0), -1); // piece of each table
  for (int64_t i = 0; i < words.dim(0); ++i) {
    auto word = [&](int64_t at) { return words.asInt(i * AttentionPiece::words + at); };
    const AttentionPiece p{word(0), word(1), word(2), word(3)};
    if (p.count == 0)
      continue;
    const bool inside = p.count > 0 && p.row >= 0 && p.row <= rows - p.count && p.position >= 0 &&
                        p.position <= room - p.count && p.table >= 0 && p.table < tables.dim(0);
    if (!inside)
      return c.error("piece " + llvm::Twine(i) + " of " + llvm::Twine(p.count) +
                     " tokens from row " + llvm::Twine(p.row) + ", position " +
                     llvm::Twine(p.position) + " of table " + llvm::Twine(p.table) +
                     " is outside of the rows, the tables or their pages");
    for (int64_t at = 0; at * kv.dim(4) < p.position + p.count; ++at)
      if (int64_t page = tables.asInt(p.table * tables.dim(1) + at); page < 0 || page >= kv.dim(0))
        return c.error("there is no page " + llvm::Twine(page));
    for (int64_t row = p.row; row < p.row + p.count; ++row) {
      if (taken[row])
        return c.error("row " + llvm::Twine(row) + " is in two pieces");
      taken[row] = true;
    }
    if (int64_t &last = lastOf[p.table]; std::exchange(last, i) >= 0) {
      const AttentionPiece &before = pieces.back();
      if (before.table != p.table || words.asInt((i - 1) * AttentionPiece::words + 1) == 0 ||
          before.row + before.count != p.row || before.position + before.count != p.position)
        return c.error("piece " + llvm::Twine(i) +
                       " does not go on where the piece before it of table " +
                       llvm::Twine(p.table) + " ends");
    }
    pieces.push_back(p);
  }
  if (llvm::Error e = checkPages(c, pieces))
    return e;
  return pieces;
}

/// Elements of a head.
int64_t headDim(const Tensor &kv) { return kv.dim(5) - kvScaleBytes(kv.dtype()); }

template <typename T>
void append(const EvalContext &c, const PagedState &state, llvm::ArrayRef<AttentionPiece> pieces) {
  const Tensor &kv = c.input(Kv), &qkv = c.input(Qkv), &tables = c.input(Tables);
  const int64_t packed = qkv.dim(2), heads = kv.dim(3), d = headDim(kv), size = state.tokens();
  const int64_t width = c.op().intAttr("num_heads") * d;
  for (const AttentionPiece &p : pieces)
    for (int64_t s = 0; s < p.count; ++s) {
      const int64_t position = p.position + s;
      const int64_t page = tables.asInt(p.table * tables.dim(1) + position / size);
      for (int64_t part : {0, 1})
        for (int64_t h = 0; h < heads; ++h)
          state.rows().write<T>(state.block(page, part, h), position % size, qkv,
                                (p.row + s) * packed + width + (part * heads + h) * d);
    }
}

/// What a thread keeps from one group of heads to the next.
template <typename T> struct GroupRoom {
  std::vector<T> keys, values, scratch;
  std::vector<KeyRun<T>> runs;
};

/// The attention of all pieces, or of those of one thread.
template <typename T> class PagedAttention {
public:
  PagedAttention(const EvalContext &c, const PagedState &state)
      : c_(c), state_(state), wide_(c.input(Qkv).cast(DTypeOf<T>::value)), packed_(wide_.dim(2)),
        d_(headDim(c.input(Kv))), heads_(c.op().intAttr("num_heads")),
        group_(heads_ / c.input(Kv).dim(3)), window_(c.op().intAttr("window")),
        form_(scoreForm<T>(c.op())), out_(DTypeOf<T>::value, {1, wide_.dim(1), heads_ * d_}) {
    std::fill_n(out_.data<T>(), out_.count(), T(0));
    result_ = out_.template data<T>();
  }

  /// Heads of a group read the same keys and values.
  Tensor run(llvm::ArrayRef<AttentionPiece> pieces) {
    double work = 0;
    for (const AttentionPiece &p : pieces)
      work += double(heads_ * p.count * d_) * double(p.position + p.count);
    const int64_t groups = heads_ / group_, all = int64_t(pieces.size()) * groups;
    const int64_t parts = partsOf(work, all);
    forParts(parts, [&](int64_t part) {
      static thread_local GroupRoom<T> room;
      for (int64_t i = all * part / parts; i < all * (part + 1) / parts; ++i)
        attend(pieces[i / groups], i % groups, room);
    });
    return out_;
  }

private:
  void attend(const AttentionPiece &p, int64_t group, GroupRoom<T> &room) const {
    const Tensor &tables = c_.input(Tables);
    const int64_t keys = p.position + p.count, size = state_.tokens(), width = heads_ * d_;
    room.keys.resize(keys * d_), room.values.resize(keys * d_), room.runs.clear();
    for (int64_t from = 0; from < keys; from += size) {
      const int64_t page = tables.asInt(p.table * tables.dim(1) + from / size);
      const int64_t count = std::min(size, keys - from);
      auto read = [&](int64_t part, std::vector<T> &to) {
        return state_.rows().read<T>(state_.block(page, part, group), count, to.data() + from * d_);
      };
      const T *key = read(0, room.keys), *value = read(1, room.values);
      room.runs.push_back({key, value, count, d_});
    }
    for (int64_t h = group * group_; h < (group + 1) * group_; ++h)
      attentionHead<T>({wide_.data<T>() + p.row * packed_ + h * d_,
                        result_ + p.row * width + h * d_, p.count, packed_, width},
                       room.runs, d_, form_, {true, p.position, window_, nullptr}, room.scratch);
  }

  const EvalContext &c_;
  const PagedState &state_;
  const Tensor wide_;
  const int64_t packed_, d_, heads_, group_, window_;
  const ScoreForm<T> form_;
  Tensor out_;
  T *result_ = nullptr;
};

/// Appends, then attends.
template <typename T>
Tensor attend(const EvalContext &c, const PagedState &state,
              llvm::ArrayRef<AttentionPiece> pieces) {
  append<T>(c, state, pieces);
  return PagedAttention<T>(c, state).run(pieces);
}

} // namespace

llvm::Error evalPagedAttention(EvalContext &c) {
  using enum ops::AppendAttention::Result;
  Tensor kv = c.input(Kv);
  const Tensor &qkv = c.input(Qkv);
  const int64_t heads = c.op().intAttr("num_heads"), keyHeads = kv.dim(3);
  if (kv.dim(2) != 2 || c.op().intAttr("layer") >= kv.dim(1) || keyHeads == 0 ||
      heads % keyHeads != 0 || qkv.dim(0) != 1 ||
      qkv.dim(2) != (heads + 2 * keyHeads) * headDim(kv) || kv.dim(4) == 0 ||
      c.input(Pieces).dim(1) != AttentionPiece::words)
    return c.error("shapes do not fit");
  auto pieces = piecesOf(c);
  if (!pieces)
    return pieces.takeError();
  PagedState state(kv, c.op().intAttr("layer"));
  c.output(NextKv) = kv;
  c.output(Y) = qkv.dtype() == DType::F64 ? attend<double>(c, state, *pieces)
                                          : attend<float>(c, state, *pieces);
  return llvm::Error::success();
}

/// Every position of the tables counts: how many are filled is known at run time only.
Cost pagedAttentionCost(const Op &op) {
  using enum ops::AppendAttention::Result;
  const Type &kv = op.operand(Kv)->type, &qkv = op.operand(Qkv)->type, &y = op.result(Y)->type,
             &tables = op.operand(Tables)->type;
  const Dim positions = tables.shape[1] * kv.shape[4];
  return {Dim(4) * elementCount(y.shape) * positions,
          Dim(byteSize(qkv.dtype)) * elementCount(qkv.shape) +
              Dim(byteSize(y.dtype)) * elementCount(y.shape) +
              Dim(2 * byteSize(kv.dtype)) * tables.shape[0] * kv.shape[3] * kv.shape[5] *
                  positions};
}

} // namespace gpt2c
