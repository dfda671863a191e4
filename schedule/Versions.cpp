#include "schedule/Versions.h"

#include "ir/FunctionNames.h"
#include "ir/ops/PagedAttention.h"

#include "llvm/ADT/STLExtras.h"

#include <array>

namespace gpt2c {

/// The most pages of the KV state of @extend; how many there are is said at load.
constexpr int64_t mostPages = 1 << 24;

/// The most rows of each version of @extend: near those for which @decode and @prefill are
/// compiled, so that most kernels serve both.
constexpr std::array extendRows =
    std::to_array<int64_t>({1, 8, 32, 64, 128, 256, 320, 512, 1024, 1536});

const Value *kvState(const Module &module) {
  for (auto &f : module.functions)
    if (Value *kv = f->argument("kv"))
      return kv;
  return nullptr;
}

int64_t mostSequences(const Module &module, int64_t asked) {
  const Function *forward = module.function(functions::forward);
  const Value *ids = forward && kvState(module) ? forward->argument("ids") : nullptr;
  return ids && ids->type.rank() == 2 ? ids->type.shape[0].constant().value_or(asked) : asked;
}

int64_t contextOf(const Module &module, int64_t otherwise) {
  const Value *kv = kvState(module);
  return kv ? kv->type.shape[4].constant().value_or(otherwise) : otherwise;
}

static bool isShortPrefill(const Function &f) { return f.name() == functions::prefillShort; }

bool isOtherForm(const Function &f) { return isShortPrefill(f) || functions::isWidened(f.name()); }

/// Of the symbols of @extend.
static SymbolBounds rowSymbols(const Versions::RowsBox &box) {
  const int64_t pieces = std::min(box.rows, box.rows / AttentionPiece::mostTokens + box.segments);
  return {{"rows", {1, box.rows}},
          {"segments", {1, box.segments}},
          {"sequences", {1, box.segments}},
          {"pieces", {1, pieces}},
          {"pages", {1, mostPages}}};
}

SymbolBounds Versions::bounds(const Function &f, int64_t batch) const {
  SymbolBounds bounds = given_;
  bounds.insert({{"batch", {1, batch}},
                 {"seq", {1, context_}},
                 {"past", {0, context_}},
                 {"slots", {1, maxBatch_}}});
  bounds.merge(rowSymbols(rowsBoxes().back()));
  auto bind = [&](const Type &type, unsigned axis, std::pair<int64_t, int64_t> range) {
    if (axis < type.rank())
      if (auto symbol = type.shape[axis].asSymbol())
        bounds.try_emplace(symbol->str(), range);
  };
  if (const Value *ids = f.argument("ids")) {
    bind(ids->type, 0, {1, batch});
    bind(ids->type, 1, {1, context_});
  }
  for (unsigned i = 0; i < f.numArguments(); ++i) {
    const Type &type = f.argument(i)->type;
    switch (type.rank()) {
    case 2: // a mask over past and new tokens
      bind(type, 0, {1, batch});
      bind(type, 1, {1, 2 * context_});
      break;
    case 4: // past[batch, heads, tokens, head_dim]
      bind(type, 0, {1, batch});
      bind(type, 2, {0, context_});
      break;
    case 5: // past[2, batch, heads, tokens, head_dim]
      bind(type, 1, {1, batch});
      bind(type, 3, {0, context_});
      break;
    default:
      break;
    }
  }
  for (auto &[name, range] : bounds)
    range.second = std::min(range.second, std::max(f.limits.of(name).hi, range.first));
  return bounds;
}

std::vector<std::pair<int64_t, int64_t>> Versions::boxes(const Function &f,
                                                         const Module &module) const {
  std::vector<std::pair<int64_t, int64_t>> list;
  if (f.name() == functions::decode)
    list = {{1, context_},  {8, context_},  {16, context_},
            {32, context_}, {64, context_}, {128, context_}};
  else if (isShortPrefill(f))
    return {{1, std::min<int64_t>(32, context_)}};
  else if (f.name() == functions::prefill)
    list = {{1, 32},   {1, 128},      {1, 512}, {1, 1024}, {1, 2048},
            {1, 4096}, {1, context_}, {8, 128}, {8, 512}};
  if (f.name() == functions::prefill && module.function(functions::prefillShort))
    list.erase(list.begin());
  llvm::erase_if(list, [&](auto v) { return v.first > maxBatch_ || v.second > context_; });
  list.erase(llvm::unique(list), list.end());
  if (list.empty() || list.back() != std::pair(maxBatch_, context_))
    list.push_back({maxBatch_, context_});
  return list;
}

std::vector<Versions::RowsBox> Versions::rowsBoxes(bool prompts) const {
  const int64_t most = std::min<int64_t>(extendRows.back(), maxBatch_ * context_);
  std::vector<RowsBox> list;
  for (int64_t rows : extendRows) {
    if (!list.empty() && list.back().rows >= most)
      break;
    const int64_t upTo = std::min(rows, most), segments = std::min(upTo, maxBatch_);
    if (prompts && segments > fewSegments)
      list.push_back({upTo, fewSegments});
    list.push_back({upTo, segments});
  }
  return list;
}

SymbolBounds Versions::boundsOfRows(const Function &f, const RowsBox &box) const {
  SymbolBounds bounds = rowSymbols(box);
  bounds.merge(this->bounds(f, maxBatch_));
  return bounds;
}

} // namespace gpt2c
