#include "ir/Literals.h"
#include "ir/Text.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

#include <bit>

namespace gpt2c {
namespace {

/// `sigil` and the name, in quotes unless it is an identifier.
void printName(char sigil, llvm::StringRef name, llvm::raw_ostream &os) {
  os << sigil;
  if (isIdentifier(name))
    os << name;
  else
    printQuoted(name, os);
}

/// Equality that tells zeros and NaNs apart, as the text form does.
bool identical(const Attr &a, const Attr &b) {
  auto *x = std::get_if<double>(&a), *y = std::get_if<double>(&b);
  return x && y ? std::bit_cast<uint64_t>(*x) == std::bit_cast<uint64_t>(*y) : a == b;
}

class FunctionPrinter {
public:
  FunctionPrinter(const Function &f, llvm::raw_ostream &os, const PrintOptions &options)
      : f_(f), os_(os), options_(options) {
    for (unsigned i = 0; i < f.numArguments(); ++i)
      name(f.argument(i));
    for (auto &op : f.ops())
      for (Value *r : op->results())
        name(r);
  }

  void print() {
    os_ << "func ";
    printName('@', f_.name(), os_);
    os_ << '(';
    for (unsigned i = 0; i < f_.numArguments(); ++i) {
      if (i)
        os_ << ", ";
      os_ << names_[f_.argument(i)] << ": " << f_.argument(i)->type;
    }
    os_ << ") -> (";
    if (f_.terminator())
      llvm::interleaveComma(llvm::enumerate(f_.returned()), os_, [&](auto it) {
        if (it.index() < f_.resultNames.size() && !f_.resultNames[it.index()].empty()) {
          printName('%', f_.resultNames[it.index()], os_);
          os_ << ": ";
        }
        os_ << it.value()->type;
      });
    os_ << ')';
    for (auto [i, limit] : llvm::enumerate(f_.limits.limits()))
      os_ << (i ? ", " : " where ") << limit.sum << " <= " << limit.most;
    os_ << " {\n";
    for (auto &op : f_.ops())
      print(*op);
    os_ << "}\n";
  }

private:
  /// The first value of a name keeps it.
  void name(const Value *v) {
    if (v->name.empty() || !taken_.insert(v->name).second) {
      names_[v] = "%" + std::to_string(next_++);
      return;
    }
    llvm::raw_string_ostream os(names_[v]);
    printName('%', v->name, os);
  }

  void printOperands(const Op &op) {
    llvm::ArrayRef<Value *> operands = op.operands();
    while (!operands.empty() && !operands.back())
      operands = operands.drop_back();
    llvm::interleaveComma(operands, os_, [&](const Value *v) {
      os_ << (v ? llvm::StringRef(names_[v]) : llvm::StringRef("none"));
    });
  }

  void printPayload(const Op &op) {
    if (!op.constant.valid()) {
      os_ << "elided<\"" << (op.hasAttr("elided") ? op.stringAttr("elided") : "") << "\">";
      return;
    }
    const Tensor &t = op.constant;
    int64_t limit = isFloat(t.dtype()) ? 64 : 256; // inference looks at up to 256 integers
    if (t.count() <= limit || (t.count() <= splatLimit && isSplat(t))) {
      os_ << "dense<";
      printDense(t, os_);
      os_ << '>';
      return;
    }
    uint64_t hash = t.hash();
    if (options_.weights)
      options_.weights(hash, t);
    os_ << (options_.weights ? "weight" : "elided") << "<\"" << hashText(hash) << "\">";
  }

  void printAttrs(const Op &op) {
    bool any = false;
    for (const NamedAttr &a : op.givenAttrs()) {
      const AttrSpec *spec = op.info().attr(a.name);
      if (op.is(OpCode::Constant) ||
          (spec && spec->defaultValue && identical(a.value, *spec->defaultValue)))
        continue;
      os_ << (any ? ", " : " {") << a.name << " = " << attrText(a.value);
      any = true;
    }
    if (any)
      os_ << '}';
  }

  void print(const Op &op) {
    os_ << "  ";
    llvm::interleaveComma(op.results(), os_, [&](const Value *v) { os_ << names_[v]; });
    if (op.numResults())
      os_ << " = ";
    os_ << op.info().mnemonic;
    if (op.is(OpCode::Constant)) {
      os_ << ' ';
      printPayload(op);
    } else if (op.info().has(Terminator)) {
      os_ << (op.numOperands() ? " " : "");
      printOperands(op);
    } else {
      os_ << '(';
      printOperands(op);
      os_ << ')';
    }
    printAttrs(op);
    if (op.numResults()) {
      os_ << " : ";
      llvm::interleaveComma(op.results(), os_, [&](const Value *v) { os_ << v->type; });
    }
    if (options_.locations && !op.locations.empty()) {
      os_ << " loc(";
      llvm::interleaveComma(op.locations, os_, [&](llvm::StringRef l) { printQuoted(l, os_); });
      os_ << ')';
    }
    if (options_.contents)
      for (const Value *r : op.results())
        if (r->content)
          os_ << " // = " << attrText(*r->content);
    os_ << '\n';
  }

  const Function &f_;
  llvm::raw_ostream &os_;
  const PrintOptions &options_;
  llvm::DenseMap<const Value *, std::string> names_;
  llvm::StringSet<> taken_;
  unsigned next_ = 0;
};

} // namespace

void print(const Function &f, llvm::raw_ostream &os, const PrintOptions &options) {
  FunctionPrinter(f, os, options).print();
}

void print(const Module &m, llvm::raw_ostream &os, const PrintOptions &options) {
  if (!m.name.empty() || !m.properties.empty()) {
    os << "module ";
    printName('@', m.name, os);
    if (!m.properties.empty()) {
      os << " {";
      llvm::interleaveComma(m.properties, os, [&](const auto &p) {
        if (isIdentifier(p.first))
          os << p.first;
        else
          printQuoted(p.first, os);
        os << " = ";
        printQuoted(p.second, os);
      });
      os << '}';
    }
    os << "\n\n";
  }
  bool first = true;
  for (auto &f : m.functions) {
    if (options.prints && !options.prints(*f))
      continue;
    if (!std::exchange(first, false))
      os << '\n';
    print(*f, os, options);
  }
}

std::string toText(const Function &f, const PrintOptions &options) {
  std::string out;
  llvm::raw_string_ostream os(out);
  print(f, os, options);
  return out;
}

} // namespace gpt2c
