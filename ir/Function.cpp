#include "ir/Function.h"
#include "ir/Infer.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

#include <queue>

namespace gpt2c {

Function::~Function() {
  // Uses point across ops: drop them all before the first op dies.
  for (auto &op : ops_)
    op->setOperands({});
}

Value *Function::addArgument(Type type, std::string name) {
  auto v = std::make_unique<Value>();
  v->type = std::move(type);
  v->name = std::move(name);
  v->parent_ = this;
  v->index_ = arguments_.size();
  arguments_.push_back(std::move(v));
  return arguments_.back().get();
}

void Function::eraseArgument(unsigned i) {
  assert(arguments_[i]->uses().empty() && "argument in use");
  arguments_.erase(arguments_.begin() + i);
  for (unsigned k = i; k < arguments_.size(); ++k)
    arguments_[k]->index_ = k;
}

Value *Function::argument(llvm::StringRef name) const {
  for (auto &a : arguments_)
    if (a->name == name)
      return a.get();
  return nullptr;
}

Op *Function::terminator() const {
  if (ops_.empty() || !ops_.back()->info().has(Terminator))
    return nullptr;
  return ops_.back().get();
}

Op *Function::insert(OpCode code, llvm::ArrayRef<Value *> operands, unsigned numResults,
                     Op *before) {
  auto position = before ? before->self_ : ops_.end();
  auto it = ops_.insert(position, std::unique_ptr<Op>(new Op(code, operands, numResults)));
  (*it)->self_ = it;
  (*it)->function_ = this;
  return it->get();
}

void Function::erase(Op *op) {
  assert(!op->hasUses() && "op in use");
  ops_.erase(op->self_);
}

void Function::moveBefore(Op *op, Op *before) { ops_.splice(before->self_, ops_, op->self_); }

Op *Function::next(const Op *op) const {
  auto it = std::next(op->self_);
  return it == ops_.end() ? nullptr : it->get();
}

unsigned Function::eraseDeadOps() {
  unsigned erased = 0;
  for (auto it = ops_.end(); it != ops_.begin();) {
    Op *op = std::prev(it)->get();
    if (op->info().has(Terminator) || op->hasUses()) {
      --it;
      continue;
    }
    ops_.erase(std::prev(it));
    ++erased;
  }
  return erased;
}

llvm::Error Function::sortTopologically() {
  // Kahn's algorithm; among ready ops the one that stands first now comes first.
  llvm::DenseMap<Op *, unsigned> position, waiting;
  std::vector<Op *> order;
  for (auto &op : ops_) {
    position[op.get()] = order.size();
    order.push_back(op.get());
  }
  std::priority_queue<unsigned, std::vector<unsigned>, std::greater<>> ready;
  for (Op *op : order) {
    unsigned n = 0;
    for (Value *v : op->operands())
      n += v && v->def();
    waiting[op] = n;
    if (n == 0 && !op->info().has(Terminator))
      ready.push(position[op]);
  }
  OpList sorted;
  while (!ready.empty()) {
    Op *op = order[ready.top()];
    ready.pop();
    sorted.splice(sorted.end(), ops_, op->self_);
    for (Value *r : op->results())
      for (const Use &u : r->uses())
        if (--waiting[u.op] == 0 && !u.op->info().has(Terminator))
          ready.push(position[u.op]);
  }
  bool stuck = llvm::any_of(ops_, [](auto &op) { return !op->info().has(Terminator); });
  sorted.splice(sorted.end(), ops_);
  ops_ = std::move(sorted);
  if (!stuck)
    return llvm::Error::success();
  // Every op left waits for another one left: walk backwards until one repeats.
  Op *op = nullptr;
  for (auto &o : ops_)
    if (!o->info().has(Terminator) && waiting[o.get()] > 0) {
      op = o.get();
      break;
    }
  llvm::SmallVector<Op *> path;
  while (!llvm::is_contained(path, op)) {
    path.push_back(op);
    for (Value *v : op->operands())
      if (v && v->def() && waiting[v->def()] > 0) {
        op = v->def();
        break;
      }
  }
  std::string names;
  for (Op *o : llvm::make_range(llvm::find(path, op), path.end()))
    names += (names.empty() ? "" : " <- ") + o->describe();
  return llvm::createStringError(llvm::inconvertibleErrorCode(), "cycle: " + names);
}

static void substituteType(Value &v, llvm::StringRef symbol, const Dim &by) {
  for (Dim &d : v.type.shape)
    d = d.substitute(symbol, by);
  if (v.content)
    for (Dim &d : *v.content)
      d = d.substitute(symbol, by);
}

DimBounds Function::bounds() const {
  auto axesOf = [&](auto wanted, DimBounds &bounds) {
    bool any = false;
    for (auto &a : arguments_)
      for (const Dim &d : a->type.shape)
        if (auto symbol = wanted(a->type) ? d.asSymbol() : std::nullopt) {
          bounds.atLeast(*symbol, 1);
          any = true;
        }
    return any;
  };
  DimBounds bounds = limits;
  auto isInteger = [](const Type &t) { return t.dtype == DType::I64 || t.dtype == DType::I32; };
  if (!axesOf(isInteger, bounds))
    axesOf([](const Type &t) { return t.rank() <= 3; }, bounds);
  return bounds;
}

void Function::substitute(llvm::StringRef symbol, const Dim &by) {
  limits.substitute(symbol, by);
  for (auto &a : arguments_)
    substituteType(*a, symbol, by);
  for (auto &op : ops_) {
    for (Value *r : op->results())
      substituteType(*r, symbol, by);
    llvm::SmallVector<NamedAttr, 4> attrs(op->givenAttrs());
    for (NamedAttr &a : attrs)
      if (auto *dims = std::get_if<Dims>(&a.value)) {
        for (Dim &d : *dims)
          d = d.substitute(symbol, by);
        op->setAttr(a.name, *dims);
      }
  }
}

llvm::Error Function::inferTypes() {
  for (auto &op : ops_)
    if (llvm::Error e = inferOp(*op))
      return e;
  return llvm::Error::success();
}

std::unique_ptr<Function> Function::clone(std::string name,
                                          llvm::DenseMap<Value *, Value *> *outMap) const {
  auto copy = std::make_unique<Function>(std::move(name));
  llvm::DenseMap<Value *, Value *> local, &map = outMap ? *outMap : local;
  copy->resultNames = resultNames;
  copy->limits = limits;
  for (auto &a : arguments_) {
    Value *v = copy->addArgument(a->type, a->name);
    v->content = a->content;
    map[a.get()] = v;
  }
  for (auto &op : ops_) {
    llvm::SmallVector<Value *> operands;
    for (Value *v : op->operands())
      operands.push_back(v ? map.lookup(v) : nullptr);
    Op *c = copy->insert(op->code(), operands, op->numResults(), nullptr);
    for (const NamedAttr &a : op->givenAttrs())
      c->setAttr(a.name, a.value);
    c->constant = op->constant;
    c->locations = op->locations;
    for (unsigned i = 0; i < op->numResults(); ++i) {
      c->result(i)->type = op->result(i)->type;
      c->result(i)->content = op->result(i)->content;
      c->result(i)->name = op->result(i)->name;
      map[op->result(i)] = c->result(i);
    }
  }
  return copy;
}

Function *Module::function(llvm::StringRef name) const {
  for (auto &f : functions)
    if (f->name() == name)
      return f.get();
  return nullptr;
}

Function *Module::addFunction(std::string name) {
  functions.push_back(std::make_unique<Function>(std::move(name)));
  return functions.back().get();
}

Tensor ConstantPool::share(Tensor t) {
  auto &candidates = byHash_[t.hash()];
  for (const Tensor &c : candidates)
    if (c.dtype() == t.dtype() && c.shape() == t.shape() && c.byteArray() == t.byteArray())
      return c;
  candidates.push_back(t);
  return t;
}

} // namespace gpt2c
