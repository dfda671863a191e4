#include "ir/Verifier.h"

#include "ir/Error.h"
#include "ir/Infer.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

namespace gpt2c {
namespace {

/// The known name nearest to a misspelt one, as ": did you mean 'x'?"; empty when none is near.
std::string suggestion(llvm::StringRef name, llvm::ArrayRef<AttrSpec> specs) {
  for (const AttrSpec &s : specs)
    if (s.name.edit_distance(name) <= 2)
      return (": did you mean '" + s.name + "'?").str();
  return {};
}

/// Calls `report` with every way in which `op` does not fit its signature.
void checkSignature(const Op &op, llvm::function_ref<void(const llvm::Twine &)> report) {
  const OpInfo &info = op.info();
  unsigned required = 0;
  bool variadic = false;
  for (const OperandSpec &s : info.operands) {
    required += s.kind == OperandSpec::Required;
    variadic |= s.kind == OperandSpec::Variadic;
  }
  unsigned most = info.operands.size();
  if (op.numOperands() < required || (!variadic && op.numOperands() > most)) {
    std::string takes =
        variadic ? "at least " + std::to_string(required) : std::to_string(required);
    if (!variadic && most != required)
      takes += " to " + std::to_string(most);
    report("has " + llvm::Twine(op.numOperands()) + " operands, takes " + takes);
  }
  for (auto [i, v] : llvm::enumerate(op.operands())) {
    if (v)
      continue;
    // The last spec of a variadic op stands for all operands from its place on.
    const OperandSpec *spec = i < most ? &info.operands[i] : nullptr;
    if (!spec || spec->kind != OperandSpec::Optional)
      report("operand " + llvm::Twine(i) + (spec ? " '" + spec->name + "'" : "") +
             " may not be none");
  }
  bool anyNumber = info.numResults == 0 && !info.has(Terminator);
  if (anyNumber ? op.numResults() == 0 : op.numResults() != info.numResults)
    report("has " + llvm::Twine(op.numResults()) + " results, gives " +
           (anyNumber ? "at least 1" : std::to_string(info.numResults)));
  for (const NamedAttr &a : op.givenAttrs()) {
    const AttrSpec *spec = info.attr(a.name);
    if (!spec)
      report("has no attribute '" + a.name + "'" + suggestion(a.name, info.attrs));
    else if (kindOf(a.value) != spec->kind)
      report("attribute '" + a.name + "' is of kind " + attrKindName(kindOf(a.value)) + ", not " +
             attrKindName(spec->kind));
  }
  for (const AttrSpec &s : info.attrs)
    if (!s.optional && !op.attr(s.name))
      report("needs the attribute '" + s.name + "'");
}

class FunctionVerifier {
public:
  explicit FunctionVerifier(const Function &f) : f_(f) {}

  llvm::Error run() {
    collect();
    checkBody();
    checkUseLists();
    if (!broken_) {
      checkInPlace();
      checkTypes();
    }
    return std::move(errors_);
  }

private:
  void fail(const llvm::Twine &where, const llvm::Twine &message) {
    broken_ = true;
    errors_ = llvm::joinErrors(
        std::move(errors_),
        makeError(ExitCode::InvalidModel, "verifier: @" + f_.name() + where + ": " + message));
  }
  void fail(const Op &op, const llvm::Twine &message) {
    fail(", op " + llvm::Twine(positions_.lookup(&op)) + " " + op.describe(), message);
  }

  /// Numbers ops and values; a value gets the position of its op plus one, arguments 0.
  void collect() {
    for (unsigned i = 0; i < f_.numArguments(); ++i)
      defined_[f_.argument(i)] = 0;
    for (auto [i, op] : llvm::enumerate(f_.ops())) {
      positions_[op.get()] = i;
      for (Value *r : op->results())
        defined_[r] = i + 1;
    }
  }

  void checkBody() {
    if (!f_.terminator())
      fail("", "does not end with return");
    else if (f_.resultNames.size() > f_.returned().size())
      fail("", "has " + llvm::Twine(f_.resultNames.size()) + " result names for " +
                   llvm::Twine(f_.returned().size()) + " results");
    for (auto [i, op] : llvm::enumerate(f_.ops())) {
      if (op->info().has(Terminator) && op.get() != f_.terminator())
        fail(*op, "stands before the end of the function");
      if (op->function() != &f_)
        fail(*op, "is not linked to its function");
      checkSignature(*op, [&](const llvm::Twine &message) { fail(*op, message); });
      for (auto [k, v] : llvm::enumerate(op->operands())) {
        if (!v)
          continue;
        auto it = defined_.find(v);
        if (it == defined_.end())
          fail(*op, "operand " + llvm::Twine(k) + " is no value of this function");
        else if (it->second > i)
          fail(*op,
               "operand " + llvm::Twine(k) + " is defined by a later op, " + v->def()->describe());
      }
    }
  }

  void checkUseLists() {
    llvm::DenseMap<const Value *, unsigned> found;
    for (auto &op : f_.ops())
      for (Value *v : op->operands())
        if (v)
          ++found[v];
    auto check = [&](const Value *v, const llvm::Twine &what) {
      bool valid = llvm::all_of(v->uses(), [&](const Use &u) {
        return positions_.contains(u.op) && u.op->operand(u.operand) == v;
      });
      if (!valid || v->uses().size() != found.lookup(v))
        fail(what, "the use list does not agree with the operands");
    };
    for (unsigned i = 0; i < f_.numArguments(); ++i)
      check(f_.argument(i), ", argument " + f_.argument(i)->name);
    for (auto &op : f_.ops())
      for (auto [i, r] : llvm::enumerate(op->results())) {
        if (r->def() != op.get() || r->index() != i)
          fail(*op, "result " + llvm::Twine(i) + " is not linked to its op");
        check(r, ", op " + llvm::Twine(positions_.lookup(op.get())) + " " + op->describe());
      }
  }

  void checkInPlace() {
    for (auto &op : f_.ops()) {
      if (!op->info().has(InPlace))
        continue;
      for (const Use &u : op->operand(0)->uses())
        if ((u.op == op.get() && u.operand != 0) ||
            positions_.lookup(u.op) > positions_.lookup(op.get()))
          fail(*op, "takes over operand 0, which is used again by op " +
                        llvm::Twine(positions_.lookup(u.op)) + " " + u.op->describe());
    }
  }

  /// Infers a copy, op by op from the types that stand, so that one wrong type is reported once.
  void checkTypes() {
    auto copy = f_.clone(f_.name());
    for (auto [original, op] : llvm::zip_equal(f_.ops(), copy->ops())) {
      if (llvm::Error e = inferOp(*op)) {
        fail(*original, llvm::toString(std::move(e)));
        continue;
      }
      for (unsigned i = 0; i < op->numResults(); ++i) {
        Type &inferred = op->result(i)->type;
        const Type &type = original->result(i)->type;
        if (inferred == type)
          continue;
        fail(*original, "result " + llvm::Twine(i) + " has the type " + type.str() +
                            ", inference gives " + inferred.str());
        inferred = type;
      }
    }
  }

  const Function &f_;
  llvm::DenseMap<const Op *, unsigned> positions_;
  llvm::DenseMap<const Value *, unsigned> defined_;
  llvm::Error errors_ = llvm::Error::success();
  bool broken_ = false;
};

} // namespace

llvm::Error verify(const Function &f) { return FunctionVerifier(f).run(); }

llvm::Error verify(const Module &m) {
  llvm::Error errors = llvm::Error::success();
  llvm::StringSet<> names;
  for (auto &f : m.functions) {
    if (!names.insert(f->name()).second)
      errors = llvm::joinErrors(
          std::move(errors),
          makeError(ExitCode::InvalidModel, "verifier: two functions are named @" + f->name()));
    errors = llvm::joinErrors(std::move(errors), verify(*f));
  }
  return errors;
}

llvm::Error verifySignature(const Op &op) {
  std::string message;
  checkSignature(op,
                 [&](const llvm::Twine &m) { message += (message.empty() ? "" : "; ") + m.str(); });
  if (message.empty())
    return llvm::Error::success();
  return makeError(ExitCode::InvalidModel, op.info().mnemonic + " " + message);
}

} // namespace gpt2c
