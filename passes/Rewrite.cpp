#include "passes/Rewrite.h"

#include "ir/Error.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

Op *constantOp(const Value *v) {
  return v && v->def() && v->def()->is(OpCode::Constant) ? v->def() : nullptr;
}

std::optional<double> scalarConstant(const Value *v) {
  Op *c = constantOp(v);
  if (!c || !c->constant.valid() || c->constant.count() != 1)
    return std::nullopt;
  return c->constant.asDouble(0);
}

double Match::scalar(llvm::StringRef name) const { return *scalarConstant(value(name)); }

Pattern Pattern::any(llvm::StringRef name) {
  Pattern p;
  p.name_ = name.str();
  return p;
}

Pattern Pattern::argument(llvm::StringRef name) {
  Pattern p = any(name);
  p.kind_ = Argument;
  return p;
}

Pattern Pattern::scalar(llvm::StringRef name) {
  Pattern p = any(name);
  p.kind_ = Scalar;
  return p;
}

Pattern Pattern::number(double value) {
  Pattern p;
  p.kind_ = Number;
  p.number_ = value;
  return p;
}

Pattern Pattern::constant(llvm::StringRef name) {
  Pattern p = any(name);
  p.kind_ = Constant;
  return p;
}

Pattern Pattern::op(OpCode code, std::vector<Pattern> operands, llvm::StringRef name) {
  Pattern p = any(name);
  p.kind_ = OpKind;
  p.code_ = code;
  p.children_ = std::move(operands);
  return p;
}

Pattern Pattern::oneOf(std::vector<Pattern> alternatives) {
  Pattern p;
  p.kind_ = OneOf;
  p.children_ = std::move(alternatives);
  return p;
}

llvm::SmallVector<OpCode, 2> Pattern::rootCodes() const {
  llvm::SmallVector<OpCode, 2> codes;
  if (kind_ == OpKind)
    codes.push_back(code_);
  if (kind_ == OneOf)
    for (const Pattern &c : children_)
      llvm::append_range(codes, c.rootCodes());
  return codes;
}

static bool capture(const std::string &name, Value *v, Match &m) {
  if (name.empty())
    return true;
  auto [it, isNew] = m.values.try_emplace(name, v);
  return isNew || it->second == v;
}

bool Pattern::matchChildren(Op *op, bool swapped, unsigned i, const Match &m, Accept accept) const {
  if (i == children_.size())
    return accept(m);
  Value *operand = op->operand(swapped && i < 2 ? 1 - i : i);
  return children_[i].matchFrom(operand, m, [&](const Match &next) {
    return matchChildren(op, swapped, i + 1, next, accept);
  });
}

bool Pattern::matchFrom(Value *v, const Match &m, Accept accept) const {
  if (!v)
    return false;
  auto captured = [&] {
    Match next = m;
    return capture(name_, v, next) && accept(next);
  };
  switch (kind_) {
  case Any:
    return captured();
  case Argument:
    return !v->def() && v->name == name_ && captured();
  case Scalar:
    return scalarConstant(v) && captured();
  case Number:
    return scalarConstant(v) == number_ && accept(m);
  case Constant:
    return constantOp(v) && captured();
  case OneOf:
    return llvm::any_of(children_, [&](const Pattern &c) { return c.matchFrom(v, m, accept); });
  case OpKind:
    break;
  }
  Op *op = v->def();
  if (!op || !op->is(code_) || op->numResults() != 1)
    return false;
  for (unsigned i = children_.size(); i < op->numOperands(); ++i)
    if (op->operand(i))
      return false;
  Match next = m;
  next.ops.push_back(op);
  if (!capture(name_, v, next))
    return false;
  return matchChildren(op, false, 0, next, accept) ||
         (op->info().has(Commutative) && children_.size() >= 2 &&
          matchChildren(op, true, 0, next, accept));
}

bool Pattern::match(Value *v, Match &m, Accept guard) const {
  return matchFrom(v, Match(), [&](const Match &found) {
    if (guard && !guard(found))
      return false;
    m = found;
    return true;
  });
}

void adoptLocations(llvm::ArrayRef<Op *> created, llvm::ArrayRef<Op *> matched) {
  for (Op *c : created)
    for (Op *m : matched)
      if (c != m)
        c->addLocations(m->locations);
}

/// Tries one rule at one root; the number of rewrites made (0 or 1).
static llvm::Expected<unsigned> tryRule(Function &f, const Rule &rule, Op *root) {
  Match m;
  if (!rule.pattern.match(root->result(), m, rule.guard ? Pattern::Accept(rule.guard) : nullptr))
    return 0;
  Builder b(f, root);
  auto replacement = rule.replace(m, b);
  auto rollBack = [&] {
    for (Op *op : llvm::reverse(b.created()))
      f.erase(op);
  };
  llvm::Error problem = llvm::Error::success();
  if (!replacement)
    problem = replacement.takeError();
  else if (!*replacement) { // the rule changed its mind
    rollBack();
    return 0;
  } else if ((*replacement)->type != root->result()->type)
    problem = llvm::createStringError(llvm::inconvertibleErrorCode(),
                                      "the replacement has type " + (*replacement)->type.str() +
                                          ", the root " + root->result()->type.str());
  if (problem) {
    rollBack();
    return inContext("rule " + rule.name + " failed at " + root->describe(), std::move(problem));
  }
  adoptLocations(b.created(), m.ops);
  root->result()->replaceAllUsesWith(*replacement);
  return 1;
}

llvm::Expected<unsigned> applyRules(Function &f, llvm::ArrayRef<Rule> rules) {
  unsigned total = 0, limit = 1000 + 50 * f.ops().size();
  for (bool changed = true; changed;) {
    changed = false;
    for (auto it = f.ops().begin(); it != f.ops().end(); ++it) {
      Op *op = it->get();
      if (op->numResults() != 1 || !op->hasUses())
        continue;
      for (const Rule &rule : rules) {
        auto codes = rule.pattern.rootCodes();
        if (!codes.empty() && !llvm::is_contained(codes, op->code()))
          continue;
        auto n = tryRule(f, rule, op);
        if (!n)
          return n.takeError();
        if (*n == 0)
          continue;
        changed = true;
        if (++total > limit)
          return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                         "rewriting does not end; last rule: " + rule.name);
        break;
      }
    }
    f.eraseDeadOps();
  }
  return total;
}

bool sameAttrs(const Op &a, const Op &b) {
  return llvm::all_of(a.info().attrs, [&](const AttrSpec &spec) {
    const Attr *x = a.attr(spec.name), *y = b.attr(spec.name);
    return x && y ? *x == *y : x == y;
  });
}

} // namespace gpt2c
