#include "ir/Function.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

#define OP(Name, ...) extern const OpInfo op##Name;
#include "ir/Ops.def"

static const OpInfo *const table[] = {
#define OP(Name, ...) &op##Name,
#include "ir/Ops.def"
};

llvm::ArrayRef<const OpInfo *> allOps() { return table; }

const OpInfo &opInfo(OpCode code) { return *table[static_cast<size_t>(code)]; }

const OpInfo *findOp(llvm::StringRef mnemonic) {
  static const auto *index = [] {
    auto *m = new llvm::StringMap<const OpInfo *>();
    for (const OpInfo *info : table)
      (*m)[info->mnemonic] = info;
    return m;
  }();
  return index->lookup(mnemonic);
}

const AttrSpec *OpInfo::attr(llvm::StringRef name) const {
  auto it = llvm::find_if(attrs, [&](const AttrSpec &a) { return a.name == name; });
  return it == attrs.end() ? nullptr : &*it;
}

llvm::StringRef attrKindName(AttrKind k) {
  switch (k) {
  case AttrKind::Bool:
    return "bool";
  case AttrKind::Int:
    return "int";
  case AttrKind::Float:
    return "float";
  case AttrKind::String:
    return "string";
  case AttrKind::DType:
    return "dtype";
  case AttrKind::Dims:
    return "dims";
  }
  return "?";
}

Function *Value::function() const { return def_ ? def_->function() : parent_; }

void Value::replaceAllUsesWith(Value *by) {
  assert(by != this && "a value cannot replace itself");
  while (!uses_.empty()) {
    Use u = uses_.back();
    u.op->setOperand(u.operand, by);
  }
}

Op::Op(OpCode code, llvm::ArrayRef<Value *> operands, unsigned numResults) : code_(code) {
  for (unsigned i = 0; i < numResults; ++i) {
    results_.push_back(std::make_unique<Value>());
    results_.back()->def_ = this;
    results_.back()->index_ = i;
  }
  setOperands(operands);
}

Op::~Op() { setOperands({}); }

void Op::dropUse(unsigned i) {
  if (Value *v = operands_[i])
    llvm::erase_if(v->uses_, [&](const Use &u) { return u.op == this && u.operand == i; });
}

void Op::setOperand(unsigned i, Value *v) {
  dropUse(i);
  operands_[i] = v;
  if (v)
    v->uses_.push_back({this, i});
}

void Op::setOperands(llvm::ArrayRef<Value *> values) {
  llvm::SmallVector<Value *, 4> copy(values.begin(), values.end());
  for (unsigned i = 0; i < operands_.size(); ++i)
    dropUse(i);
  operands_.assign(copy.size(), nullptr);
  for (unsigned i = 0; i < copy.size(); ++i)
    setOperand(i, copy[i]);
}

bool Op::hasUses() const {
  return llvm::any_of(results_, [](auto &v) { return !v->uses().empty(); });
}

const Attr *Op::attr(llvm::StringRef name) const {
  for (const NamedAttr &a : attrs_)
    if (a.name == name)
      return &a.value;
  const AttrSpec *spec = info().attr(name);
  return spec && spec->defaultValue ? &*spec->defaultValue : nullptr;
}

std::vector<int64_t> Op::intsAttr(llvm::StringRef name) const {
  std::vector<int64_t> out;
  for (const Dim &d : dimsAttr(name))
    out.push_back(d.constant().value());
  return out;
}

void Op::setAttr(llvm::StringRef name, Attr value) {
  for (NamedAttr &a : attrs_)
    if (a.name == name) {
      a.value = std::move(value);
      return;
    }
  attrs_.push_back({intern(name), std::move(value)});
  llvm::ArrayRef<AttrSpec> specs = info().attrs;
  auto position = [&](const NamedAttr &a) {
    return llvm::find_if(specs, [&](const AttrSpec &s) { return s.name == a.name; });
  };
  llvm::stable_sort(attrs_, [&](auto &a, auto &b) { return position(a) < position(b); });
}

void Op::removeAttr(llvm::StringRef name) {
  llvm::erase_if(attrs_, [&](const NamedAttr &a) { return a.name == name; });
}

void Op::addLocations(llvm::ArrayRef<llvm::StringRef> names) {
  for (llvm::StringRef n : names)
    locations.push_back(intern(n));
  llvm::sort(locations);
  locations.erase(std::unique(locations.begin(), locations.end()), locations.end());
}

std::string Op::describe() const {
  std::string out;
  llvm::raw_string_ostream os(out);
  os << info().mnemonic;
  if (!locations.empty()) {
    os << " (from ";
    llvm::interleaveComma(llvm::ArrayRef(locations).take_front(4), os);
    if (locations.size() > 4)
      os << " and " << locations.size() - 4 << " more";
    os << ")";
  }
  return out;
}

} // namespace gpt2c
