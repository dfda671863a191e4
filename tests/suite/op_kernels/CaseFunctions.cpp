#include "CaseFunctions.h"

#include "codegen/StepBuilder.h"
#include "templates/Lowerings.h"

#include "llvm/ADT/STLExtras.h"

#include <optional>

namespace gpt2c::suite {

int64_t symbolValue(llvm::StringRef name) {
  int64_t value = 0;
  bool bad = !name.consume_front("s") || name.getAsInteger(10, value);
  return bad ? -1 : value;
}

std::map<std::string, std::pair<int64_t, int64_t>> symbolBounds(const CaseFunction &made) {
  std::map<std::string, std::pair<int64_t, int64_t>> bounds;
  for (unsigned i = 0; i < made.function->numArguments(); ++i)
    for (const Dim &d : made.function->argument(i)->type.shape)
      if (auto s = d.asSymbol())
        bounds[s->str()] = {0, 2 * symbolValue(*s)};
  return bounds;
}

/// Whether an op is left out of the plan because of what it is.
static llvm::Error tryLowering(const CaseFunction &made) {
  PlanPool pool;
  plan::FunctionT scratch;
  auto bounds = symbolBounds(made);
  StepBuilder builder(pool, scratch, SymbolBounds(bounds.begin(), bounds.end()));
  return build(builder, *made.function);
}

/// Sizes that a form of a case keeps as numbers; later forms keep more, for ops that need to know
/// some of their sizes.
static bool keepsSize(const OpCase &c, int form, int64_t size) {
  auto has = [&](unsigned i) {
    return i < c.inputs.size() && c.inputs[i].tensor.valid() &&
           llvm::is_contained(c.inputs[i].tensor.shape(), size);
  };
  auto isLast = [&](const CaseInput &in) {
    return in.tensor.valid() && in.tensor.rank() > 0 && in.tensor.dim(-1) == size;
  };
  switch (form) {
  case 0: // none
    return false;
  case 1: // widths
    return llvm::any_of(c.inputs, isLast);
  case 2: // weights
    return llvm::any_of(c.inputs, isLast) || has(1);
  default: // a state
    return has(0);
  }
}

namespace {
struct Attempt {
  std::optional<CaseFunction> made; // empty: inference refuses the form
  std::string refusal;              // of the code generator
};
} // namespace

static Attempt attempt(const OpCase &c, const std::string &name, IsSymbolic isSymbolic) {
  Attempt out;
  auto made = makeFunction(c, name, isSymbolic);
  if (!made) {
    llvm::consumeError(made.takeError()); // whether cases are sound is tested by suite_ops
    return out;
  }
  if (llvm::Error e = tryLowering(*made))
    out.refusal = llvm::toString(std::move(e));
  out.made = std::move(*made);
  return out;
}

static Attempt attemptSymbolic(const OpCase &c, const std::string &name) {
  Attempt out;
  constexpr int forms = 4;
  for (int form = 0; form < forms; ++form) {
    out = attempt(c, name, [&](int64_t size) { return !keepsSize(c, form, size); });
    if (out.made && symbolBounds(*out.made).empty())
      out.made.reset();
    if (out.made && out.refusal.empty())
      break;
  }
  return out;
}

CaseFunctions makeFunctions(llvm::ArrayRef<OpCase> cases, llvm::StringRef filter) {
  CaseFunctions out;
  for (bool symbolic : {false, true})
    for (const OpCase &c : cases) {
      if (!llvm::StringRef(c.title()).contains(filter))
        continue;
      std::string name = "case" + std::to_string(out.entries.size());
      Attempt a =
          symbolic ? attemptSymbolic(c, name) : attempt(c, name, [](int64_t) { return false; });
      if (!a.made) {
        out.notSymbolic += symbolic;
        continue;
      }
      CaseEntry entry{&c, symbolic, std::move(*a.made)};
      if (!a.refusal.empty()) {
        out.refusals[a.refusal.substr(a.refusal.find(' ') + 1)].push_back(entry.title());
        continue;
      }
      out.lowered.insert(entry.made.op->code());
      out.entries.push_back(std::move(entry));
    }
  return out;
}

void keepOneForm(CaseFunctions &functions) {
  std::map<const OpCase *, unsigned> forms;
  for (const CaseEntry &e : functions.entries)
    ++forms[e.c];
  std::map<const OpCase *, bool> keepsSymbolic;
  for (const CaseEntry &e : functions.entries)
    keepsSymbolic.emplace(e.c, keepsSymbolic.size() % 2 == 0);
  llvm::erase_if(functions.entries, [&](const CaseEntry &e) {
    return forms[e.c] > 1 && e.symbolic != keepsSymbolic[e.c];
  });
}

} // namespace gpt2c::suite
