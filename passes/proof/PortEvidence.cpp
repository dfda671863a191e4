// Which ports of an exported graph are what: by what the graph does with them and by their names.
#include "passes/proof/KvInterface.h"
#include "passes/proof/PositionProof.h"
#include "passes/proof/TokenWise.h"
#include "passes/proof/bounds/Probabilities.h"
#include "passes/proof/masks/Probe.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"

namespace gpt2c {

namespace {

enum class Hint : uint8_t { None, Ids, Positions, Types, Mask };

/// A table and what its rows are chosen by.
struct TableRead {
  Op *gather;
  llvm::SmallVector<Value *> leaves;
  int64_t rows() const { return *gather->operand(ops::Gather::X)->type.shape[0].constant(); }
};

} // namespace

static Hint hintOf(const Value *argument) {
  std::string lower = llvm::StringRef(argument->name).lower();
  llvm::StringRef name(lower);
  if (name.contains("mask"))
    return Hint::Mask;
  if (name.contains("type") || name.contains("segment"))
    return Hint::Types;
  if (name.contains("pos"))
    return Hint::Positions;
  return name.contains("id") || name.contains("token") ? Hint::Ids : Hint::None;
}

static bool isIndexInput(const Value *v) {
  return v->type.rank() == 2 && (v->type.dtype == DType::I32 || v->type.dtype == DType::I64);
}

/// The arguments that `v` is computed from; empty: constants alone, as of a table in few bits.
static llvm::SmallVector<Value *> argumentsOf(Value *v) {
  return backwardSlice(v, [](Value *) { return false; }).leaves;
}

static std::vector<TableRead> tableReads(Function &f) {
  std::vector<TableRead> reads;
  for (auto &op : f.ops()) {
    if (!op->is(OpCode::Gather) || op->intAttr("axis") != 0 || !isFloat(op->result()->type.dtype))
      continue;
    Value *table = op->operand(ops::Gather::X);
    if (table->type.rank() == 2 && table->type.shape[0].constant() && argumentsOf(table).empty())
      reads.push_back({op.get(), argumentsOf(op->operand(ops::Gather::Indices))});
  }
  return reads;
}

/// Columns of a result that may be logits: [batch, tokens, columns] or [batch, columns].
static std::optional<int64_t> columnsOf(const Value *v) {
  if (!isFloat(v->type.dtype) || v->type.rank() < 2 || v->type.rank() > 3)
    return std::nullopt;
  return v->type.shape.back().constant();
}

/// Whether `ids` alone chooses the rows of a table with as many rows as a result has columns.
static bool readsVocabulary(const Function &f, llvm::ArrayRef<TableRead> reads, const Value *ids) {
  return llvm::any_of(reads, [&](const TableRead &r) {
    return llvm::ArrayRef<Value *>(r.leaves) == llvm::ArrayRef(const_cast<Value *>(ids)) &&
           llvm::any_of(f.returned(), [&](const Value *v) { return columnsOf(v) == r.rows(); });
  });
}

static std::string quotedNames(llvm::ArrayRef<Value *> values) {
  std::string out;
  for (auto [i, v] : llvm::enumerate(values))
    out += (i == 0 ? "'" : i + 1 == values.size() ? " and '" : ", '") + v->name + "'";
  return out;
}

/// Hidden states that come in from outside, in the place of ids.
static bool takesEmbeddings(const Function &f) {
  for (unsigned i = 0; i < f.numArguments(); ++i)
    if (const Value *a = f.argument(i);
        isFloat(a->type.dtype) && a->type.rank() == 3 && !a->uses().empty())
      return true;
  return false;
}

static Value *chooseIds(const Function &f, llvm::ArrayRef<TableRead> reads, std::string &doubt) {
  llvm::SetVector<Value *> found;
  for (const TableRead &r : reads)
    for (Value *v : r.leaves)
      if (isIndexInput(v) && hintOf(v) != Hint::Mask)
        found.insert(v);
  llvm::ArrayRef<Value *> all = found.getArrayRef();
  if (all.size() == 1 && (!takesEmbeddings(f) || hintOf(all[0]) == Hint::Ids))
    return all[0]; // whatever it is called
  llvm::SmallVector<Value *> likely;
  for (Hint hint : {Hint::Ids, Hint::None})
    if (likely.empty())
      llvm::copy_if(all, std::back_inserter(likely), [&](Value *v) { return hintOf(v) == hint; });
  auto reading = [&](llvm::ArrayRef<Value *> inputs) {
    llvm::SmallVector<Value *> out;
    llvm::copy_if(inputs, std::back_inserter(out),
                  [&](Value *v) { return readsVocabulary(f, reads, v); });
    return out;
  };
  if (likely.size() > 1)
    likely = reading(likely);
  llvm::SmallVector<Value *> byTable = reading(all);
  bool contradicted =
      likely.size() == 1 && !byTable.empty() && !llvm::is_contained(byTable, likely[0]);
  if (likely.size() == 1 && !contradicted)
    return likely[0];
  if (!all.empty() && !takesEmbeddings(f))
    doubt = "which of the inputs " + quotedNames(all) + " holds the token ids is not clear" +
            (contradicted ? ": '" + likely[0]->name +
                                "' is called so, but reads a table of another length than the "
                                "logits"
                          : ": none or several of them are called ids or tokens");
  for (const TableRead &r : reads)
    for (const Value *v : r.leaves)
      if (all.empty() && !v->def() && isInteger(v->type.dtype) && v->type.rank() != 2)
        doubt = "the input '" + v->name + "' has " + std::to_string(v->type.rank()) +
                (v->type.rank() == 1 ? " axis" : " axes") +
                " where token ids have two, [batch, length]";
  return nullptr;
}

/// The one integer input of this kind, beside those known; null where there is none or several.
static Value *inputCalled(const Function &f, const KvInterface &io, Hint hint) {
  Value *found = nullptr;
  for (unsigned i = 0; i < f.numArguments(); ++i) {
    Value *a = f.argument(i);
    if (a == io.ids || a == io.keyMask || !isIndexInput(a) || hintOf(a) != hint)
      continue;
    if (found)
      return nullptr;
    found = a;
  }
  return found;
}

void findIndexInputs(Function &f, KvInterface &io) {
  std::vector<TableRead> reads = tableReads(f);
  io.ids = chooseIds(f, reads, io.idsDoubt);
  if (!io.ids)
    return;
  io.positionIds = inputCalled(f, io, Hint::Positions);
  io.tokenTypes = inputCalled(f, io, Hint::Types);
  for (const TableRead &r : reads) {
    Value *index = r.gather->operand(ops::Gather::Indices);
    auto atMost = [&](int64_t &limit) { limit = limit ? std::min(limit, r.rows()) : r.rows(); };
    if (isElementwiseIn(index, io.ids)) {
      io.tokenGathers.push_back(r.gather);
      if (copiedArgument(index) == io.ids)
        atMost(io.vocabulary);
    } else if (io.tokenTypes && isElementwiseIn(index, io.tokenTypes)) {
      io.typeGathers.push_back(r.gather);
    } else {
      io.positionGathers.push_back(r.gather);
      atMost(io.positions);
    }
  }
  for (auto &op : f.ops())
    if (op->is(OpCode::Rope)) {
      int64_t rows = *op->operand(ops::Rope::Cos)->type.shape[0].constant();
      io.positionGathers.push_back(op.get());
      io.positions = io.positions ? std::min(io.positions, rows) : rows;
    }
}

//===-- logits ------------------------------------------------------------------------------===//

/// x[:, -1:] or x[:, -1] of the tokens.
static bool takesLastToken(const Op &op, const Dim &tokens) {
  const Value *x = op.numOperands() ? op.operand(0) : nullptr;
  if (!x || x->type.rank() != 3 || x->type.shape[1] != tokens)
    return false;
  auto last = [&](const Dim &d) { return d == Dim(-1) || d == tokens - Dim(1); };
  auto only = [&](llvm::StringRef name, auto is) {
    return op.hasAttr(name) && op.dimsAttr(name).size() == 1 && is(op.dimsAttr(name)[0]);
  };
  if (op.is(OpCode::Slice))
    return only("axes", [](const Dim &d) { return d == Dim(1) || d == Dim(-2); }) &&
           only("starts", last) && op.result()->type.shape[1] == Dim(1) &&
           (!op.hasAttr("steps") || only("steps", [](const Dim &d) { return d == Dim(1); }));
  if (!op.is(OpCode::Gather) || (op.intAttr("axis") != 1 && op.intAttr("axis") != -2))
    return false;
  const Value *index = op.operand(ops::Gather::Indices);
  if (auto c = scalarConstant(index))
    return *c == -1;
  return index->content && index->content->size() == 1 && last(index->content->front());
}

/// What `v` is computed from row by row, with nothing but constants besides; null at the end.
static Value *computedFrom(const Value *v) {
  Op *op = v->def();
  if (!op || op->is(OpCode::Constant) || op->numOperands() == 0)
    return nullptr;
  if (!op->info().has(Elementwise))
    return op->operand(0);
  Value *only = nullptr;
  for (Value *o : op->operands())
    if (o && !constantOp(o)) {
      if (only)
        return nullptr;
      only = o;
    }
  return only;
}

/// The op that takes the last token's row in front of `v`, where all behind it works on rows; null
/// when there is none.
static Op *lastTokenOf(Value *v, const KvInterface &io) {
  Dim batch = io.ids->type.shape[0], tokens = io.ids->type.shape[1];
  for (; v && v->def(); v = computedFrom(v)) {
    if (takesLastToken(*v->def(), tokens))
      return v->def();
    if (!isTokenWise(*v->def(), batch, Dim(1)))
      return nullptr;
  }
  return nullptr;
}

/// Whether `v` is a product with a matrix of so many columns, apart from what is done to each of
/// its elements, or to each row of it.
static bool isProduct(const Value *v, int64_t columns) {
  for (; v && v->def(); v = computedFrom(v)) {
    const Op *op = v->def();
    if (op->is(OpCode::Linear) || op->is(OpCode::MatMul))
      return v->type.shape.back() == Dim(columns);
    if (op->is(OpCode::LayerNorm) || op->is(OpCode::RmsNorm) || op->is(OpCode::Attention))
      return false;
  }
  return false;
}

/// Whether result `v` has a row of logits for each token, or for the last one of each sequence.
/// Columns beyond the vocabulary, by which products are padded, need the name.
static bool mayBeLogits(Value *v, llvm::StringRef name, const KvInterface &io) {
  auto columns = columnsOf(v);
  if (!columns || v->type.shape[0] != io.ids->type.shape[0])
    return false;
  const bool padded = *columns > io.vocabulary && name.contains("logits") && isProduct(v, *columns);
  if (io.vocabulary && *columns != io.vocabulary && !padded)
    return false;
  bool everyToken = v->type.rank() == 3 && v->type.shape[1] == io.ids->type.shape[1];
  return everyToken || lastTokenOf(v, io);
}

/// True when every id of a vocabulary of `columns` reads a row that its table has.
static bool idsFit(const Function &f, const KvInterface &io, int64_t columns) {
  return llvm::all_of(io.tokenGathers, [&](Op *g) {
    if (copiedArgument(g->operand(ops::Gather::Indices)) == io.ids)
      return true; // by io.vocabulary
    auto rows = indicesOf(f, g->operand(ops::Gather::Indices), io.ids, columns);
    int64_t most = *g->operand(ops::Gather::X)->type.shape[0].constant();
    return rows && llvm::all_of(*rows, [&](int64_t r) { return r >= 0 && r < most; });
  });
}

void findLogits(Function &f, KvInterface &io) {
  if (!io.ids || io.tokenGathers.empty())
    return;
  llvm::SmallVector<unsigned> possible, named, products;
  std::string names;
  auto nameOf = [&](unsigned i) {
    return i < f.resultNames.size() ? f.resultNames[i] : "output" + std::to_string(i);
  };
  for (unsigned i = 0; i < f.returned().size(); ++i) {
    Value *v = f.returned()[i];
    if (!mayBeLogits(v, nameOf(i), io))
      continue;
    possible.push_back(i);
    names += (names.empty() ? "'" : ", '") + nameOf(i) + "'";
    if (llvm::StringRef(nameOf(i)).contains("logits"))
      named.push_back(i);
    if (isProduct(v, *columnsOf(v)))
      products.push_back(i);
  }
  if (possible.empty())
    return;
  // Probabilities beside the logits that they are made of are not meant.
  for (auto *some : {&named, &products})
    if (some->size() > 1)
      llvm::erase_if(*some,
                     [&](unsigned i) { return probabilitiesOf(f.returned()[i]).has_value(); });
  // Early exits have logits of their own.
  llvm::SmallVector<unsigned> exact;
  llvm::copy_if(named, std::back_inserter(exact),
                [&](unsigned i) { return nameOf(i) == "logits"; });
  const auto &chosen = exact.size() == 1 ? exact : named.size() == 1 ? named : products;
  if (chosen.size() != 1) {
    io.logitsDoubt = "which of the outputs holds the logits is not clear: " + names +
                     (possible.size() == 1 ? " is" : " are") +
                     " as wide as the vocabulary, and not one of them alone is called logits or "
                     "is a product";
    return;
  }
  Value *v = f.returned()[chosen[0]];
  const int64_t columns = *columnsOf(v),
                vocabulary = io.vocabulary ? std::min(io.vocabulary, columns) : columns;
  if (!idsFit(f, io, vocabulary)) {
    io.logitsDoubt = "output '" + nameOf(chosen[0]) +
                     "' has more columns than the tables of tokens have rows, or what chooses "
                     "their rows cannot be evaluated";
    return;
  }
  io.logits = int(chosen[0]);
  io.vocabulary = vocabulary;
  bool everyToken = v->type.rank() == 3 && v->type.shape[1] == io.ids->type.shape[1];
  io.lastToken = everyToken ? nullptr : lastTokenOf(v, io);
}

} // namespace gpt2c
