#include "passes/shard/ShardPlan.h"

#include "ir/Error.h"
#include "ir/ops/AppendAttention.h"
#include "passes/Rewrite.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace gpt2c {

bool isProductOfWeights(const Op &op) {
  if (!op.is(OpCode::Linear) && !op.is(OpCode::QuantizedLinear))
    return false;
  const bool quantised = op.is(OpCode::QuantizedLinear);
  // Elements that share a byte are not cut: each rank has all of them.
  return constantOp(op.operand(ops::Linear::W)) &&
         packedElements(op.operand(ops::Linear::W)->type.dtype) == 1 &&
         (!quantised ||
          (constantOp(op.operand(ops::QuantizedLinear::WScale)) &&
           !op.operand(ops::QuantizedLinear::XScale) &&
           !op.operand(ops::QuantizedLinear::SumOffset) && op.intAttr("x_group") == -1));
}

static const Value *residualOf(const Op &product) {
  return product.operand(product.is(OpCode::Linear) ? unsigned(ops::Linear::Residual)
                                                    : unsigned(ops::QuantizedLinear::Residual));
}

int64_t weightGroup(const Op &product) {
  if (!product.is(OpCode::QuantizedLinear))
    return 1;
  auto columns = [&](unsigned operand) {
    return product.operand(operand)->type.shape[1].constant().value_or(1);
  };
  const int64_t groups = columns(ops::QuantizedLinear::WScale);
  return groups > 1 ? columns(ops::QuantizedLinear::W) / groups : 1;
}

bool isElementwise(const Op &op) { return op.info().has(Elementwise) && op.numResults() == 1; }

bool takesRows(const Op &op) {
  return op.is(OpCode::GatherLast) ||
         (op.is(OpCode::Gather) && op.intAttr("axis") == 0 && op.operand(0)->type.rank() > 1);
}

std::optional<std::pair<int64_t, int64_t>> sliceOfColumns(const Op &op) {
  const auto last = int64_t(op.result()->type.rank()) - 1;
  if (!op.hasAttr("starts") || !op.hasAttr("axes") || op.hasAttr("steps") ||
      op.dimsAttr("axes").size() != 1)
    return std::nullopt;
  const Dim axis = op.dimsAttr("axes")[0];
  const auto start = op.dimsAttr("starts")[0].constant(),
             size = op.result()->type.shape.back().constant();
  if ((axis != Dim(last) && axis != Dim(-1)) || !start || *start < 0 || !size)
    return std::nullopt;
  return std::pair(*start, *start + *size);
}

static int64_t columnsOf(const Value *v) { return v->type.shape.back().constant().value_or(0); }

namespace {

class Planner {
public:
  Planner(const Function &f, int64_t ranks) : f_(f) { plan_.ranks = ranks; }

  llvm::Expected<ShardPlan> run() {
    for (auto &op : f_.ops())
      if (op->is(OpCode::AppendAttention)) {
        if (!dealAttention(*op))
          return refused();
      } else if (op->is(OpCode::QuantizedAppendAttention)) {
        obstacle_ = {op->describe() + " quantises what it computes: ranks keep activations in "
                                      "floating point, as --quantize=w8a16 and fp8-weights do",
                     op.get()};
        return refused();
      }
    if (plan_.heads.ranks == 0)
      return makeError(ExitCode::Unsupported,
                       "@" + f_.name() +
                           " has no attention over a KV state whose heads could be "
                           "dealt to ranks");
    for (auto &op : f_.ops())
      if (isProductOfWeights(*op) && !plan_.columns.count(op.get()))
        cutProduct(*op);
    return std::move(plan_);
  }

private:
  llvm::Error refused() const {
    return makeError(ExitCode::Unsupported, "@" + f_.name() + " is not for " +
                                                llvm::Twine(plan_.ranks) +
                                                " ranks: " + obstacle_.reason);
  }
  bool refuse(std::string why, const Op *op = nullptr) {
    obstacle_ = {std::move(why), op};
    return false;
  }

  /// A part of what a product computes: columns begin .. end - 1, which stand at `at` of the row
  /// that attention reads.
  struct Section {
    int64_t begin, end, at;
  };

  bool dealAttention(const Op &op) {
    using enum ops::AppendAttention::Operand;
    const Type &kv = op.operand(Kv)->type;
    const auto keyHeads = kv.shape[3].constant(), row = kv.shape[5].constant();
    const int64_t heads = op.intAttr("num_heads");
    if (!keyHeads || !row)
      return refuse("the heads of the KV state are not known");
    const int64_t headDim = *row - kvScaleBytes(kv.dtype);
    const HeadDeal deal = dealHeads(heads, *keyHeads, plan_.ranks);
    if (const int64_t idle = idleRank(deal); idle >= 0)
      return refuse(op.describe() + " has " + std::to_string(heads) + " heads of queries over " +
                        std::to_string(*keyHeads) + " of keys, which leaves rank " +
                        std::to_string(idle) + " without any",
                    &op);
    if (plan_.heads.ranks && plan_.heads != deal)
      return refuse(op.describe() + " has other heads than the attention before it", &op);
    plan_.heads = deal;
    if (!cutHeads(op.operand(Qkv), headDim, packedCut(deal, heads, *keyHeads, headDim)))
      plan_.whole.push_back(
          {"the products of the heads of " + op.describe() + ": " + obstacle_.reason, &op});
    return true;
  }

  /// Whether the products that make the heads can be cut, so that a rank computes no others.
  bool cutHeads(const Value *qkv, int64_t headDim, const Cut &packed) {
    llvm::MapVector<const Op *, std::vector<Section>> products;
    if (!findProducts(qkv, {0, columnsOf(qkv), 0}, headDim, products))
      return false;
    return llvm::all_of(
        products, [&](auto &entry) { return cutSections(*entry.first, entry.second, packed); });
  }

  /// The products that compute `section` of v, whose begin and end are columns of v.
  bool findProducts(const Value *v, Section section, int64_t headDim,
                    llvm::MapVector<const Op *, std::vector<Section>> &products) {
    const Op *op = v->def();
    if (!op)
      return refuse("the heads of attention are an argument, '" + v->name + "'");
    if (isProductOfWeights(*op) && !residualOf(*op)) {
      products[op].push_back(section);
      return true;
    }
    switch (op->code()) {
    case OpCode::Rope:
    case OpCode::Reshape:
      return findProducts(op->operand(0), section, headDim, products);
    case OpCode::RmsNorm:
    case OpCode::LayerNorm:
      if (columnsOf(op->operand(0)) != headDim)
        return refuse(op->describe() + " is over all heads", op);
      return findProducts(op->operand(0), section, headDim, products);
    case OpCode::Slice:
      return findSliced(*op, section, headDim, products);
    case OpCode::Concat:
      return findJoined(*op, section, headDim, products);
    default:
      break;
    }
    if (!isElementwise(*op))
      return refuse(op->describe() + " stands between attention and the products of its heads", op);
    for (const Value *x : op->operands())
      if (x && !constantOp(x) && !findProducts(x, section, headDim, products))
        return false;
    return true;
  }

  bool findSliced(const Op &op, Section section, int64_t headDim,
                  llvm::MapVector<const Op *, std::vector<Section>> &products) {
    const auto columns = sliceOfColumns(op);
    if (!columns)
      return refuse(op.describe() + " takes more than columns", &op);
    const int64_t start = columns->first;
    return findProducts(op.operand(0), {section.begin + start, section.end + start, section.at},
                        headDim, products);
  }

  bool findJoined(const Op &op, Section section, int64_t headDim,
                  llvm::MapVector<const Op *, std::vector<Section>> &products) {
    const int64_t axis = op.intAttr("axis"), rank = op.result()->type.rank();
    if (axis != -1 && axis != rank - 1)
      return refuse(op.describe() + " joins more than columns", &op);
    int64_t offset = 0;
    for (const Value *x : op.operands()) {
      const int64_t width = columnsOf(x), begin = std::max(section.begin, offset),
                    end = std::min(section.end, offset + width);
      if (begin < end &&
          !findProducts(x, {begin - offset, end - offset, section.at + begin - section.begin},
                        headDim, products))
        return false;
      offset += width;
    }
    return true;
  }

  /// A rank computes of each section what it has of the row that attention reads.
  bool cutSections(const Op &product, std::vector<Section> &sections, const Cut &packed) {
    llvm::sort(sections, [](auto &a, auto &b) { return a.begin < b.begin; });
    const size_t count = packed.ofRank(plan_.ranks);
    Cut cut{packed.unit, {}};
    std::vector<std::vector<int64_t>> units(plan_.ranks);
    int64_t next = 0;
    for (const Section &s : sections) {
      const CutSlice part = sliceOf(packed, plan_.ranks, s.at, s.at + s.end - s.begin);
      if (s.begin != next || part.cut.units.empty() || s.begin % packed.unit != 0)
        return refuse(product.describe() + " computes other columns than those of whole heads",
                      &product);
      next = s.end;
      const size_t some = part.cut.ofRank(plan_.ranks);
      for (int64_t r = 0; r < plan_.ranks; ++r)
        for (size_t i = 0; i < some; ++i) {
          const int64_t u = part.cut.units[r * some + i];
          units[r].push_back(u < 0 ? -1 : u + s.begin / packed.unit);
        }
    }
    if (next != columnsOf(product.result()) || count == 0)
      return refuse(product.describe() + " computes more than heads", &product);
    for (auto &ofRank : units)
      llvm::append_range(cut.units, ofRank);
    auto [it, isNew] = plan_.columns.try_emplace(&product, cut);
    return isNew || it->second == cut ||
           refuse(product.describe() + " is read by several attentions", &product);
  }

  /// How the columns of v have to be cut for the products that read them; empty where something
  /// else does, or they want different things. `obstacle_` says why where there is such a product.
  Cut wantedBy(const Value *v, bool &found) {
    Cut wanted;
    bool one = true;
    for (const Use &use : v->uses()) {
      const Cut cut = wantedBy(*use.op, use.operand, found);
      one = one && !cut.units.empty() && (wanted.units.empty() || wanted == cut);
      wanted = cut;
    }
    return one ? wanted : Cut();
  }

  Cut wantedBy(const Op &op, unsigned operand, bool &found) {
    if (isProductOfWeights(op) && operand == ops::Linear::X) {
      found = true;
      const int64_t k = op.operand(ops::Linear::X)->type.shape.back().constant().value_or(0);
      Cut cut = contiguousCut(k, plan_.ranks, weightGroup(op));
      if (cut.units.empty())
        obstacle_ = {std::to_string(k) + " columns in units of " + std::to_string(cut.unit) +
                         " leave a rank without any",
                     &op};
      return cut;
    }
    if (op.is(OpCode::Gated))
      return ofGates(op, wantedBy(op.result(), found));
    const bool byColumns = isElementwise(op) || (takesRows(op) && operand == 0);
    return byColumns ? wantedBy(op.result(), found) : Cut();
  }

  /// What a gate reads for what is wanted of its result.
  Cut ofGates(const Op &gated, const Cut &wanted) {
    if (wanted.units.empty())
      return {};
    if (gated.boolAttr("interleaved"))
      return {2 * wanted.unit, wanted.units};
    const int64_t n = columnsOf(gated.result());
    if (n % wanted.unit != 0) {
      obstacle_ = {std::to_string(n) + " gates do not divide into units of " +
                       std::to_string(wanted.unit),
                   &gated};
      return {};
    }
    Cut cut{wanted.unit, {}};
    const size_t count = wanted.ofRank(plan_.ranks);
    for (int64_t r = 0; r < plan_.ranks; ++r)
      for (int64_t half : {int64_t(0), n / wanted.unit})
        for (size_t i = 0; i < count; ++i)
          cut.units.push_back(wanted.units[r * count + i] + half);
    return cut;
  }

  /// Whether v becomes logits, element by element, under whatever shape of its rows.
  static bool becomesLogits(const Value *v) {
    return llvm::any_of(v->uses(), [&](const Use &use) {
      const Op &op = *use.op;
      const bool keeps =
          isElementwise(op) || (op.is(OpCode::Reshape) && op.result()->type.rank() > 0 &&
                                op.result()->type.shape.back() == v->type.shape.back());
      return op.is(OpCode::ArgMax) || (keeps && becomesLogits(op.result()));
    });
  }

  /// A product in columns of its own where the products behind it can take rows of theirs, or it
  /// makes the logits.
  void cutProduct(const Op &op) {
    if (residualOf(op) || op.operand(ops::Linear::X)->type.rank() < 2)
      return;
    bool found = false;
    obstacle_ = Obstacle();
    if (const Cut cut = wantedBy(op.result(), found); !cut.units.empty()) {
      plan_.columns[&op] = cut;
      return;
    }
    if (found && obstacle_.op)
      plan_.whole.push_back({"all of " + op.describe() + ": " + obstacle_.reason, &op});
    if (!becomesLogits(op.result()))
      return;
    if (Cut cut = contiguousCut(columnsOf(op.result()), plan_.ranks); !cut.units.empty())
      plan_.columns[&op] = std::move(cut);
  }

  const Function &f_;
  ShardPlan plan_;
  Obstacle obstacle_;
};

} // namespace

llvm::Expected<ShardPlan> planShards(const Function &f, int64_t ranks) {
  return Planner(f, ranks).run();
}

} // namespace gpt2c
