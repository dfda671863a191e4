#include "ir/OpDocs.h"

#include "ir/Text.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace gpt2c {

static void printTraits(const OpInfo &op, llvm::raw_ostream &os) {
  static constexpr std::pair<Trait, llvm::StringLiteral> names[] = {
      {Elementwise, "elementwise"}, {Commutative, "commutative"}, {DataMovement, "data movement"},
      {InPlace, "in place"},        {Idempotent, "idempotent"},   {Terminator, "terminator"},
      {Reduction, "reduction"},
  };
  llvm::SmallVector<llvm::StringRef> present;
  for (auto [trait, name] : names)
    if (op.has(trait))
      present.push_back(name);
  if (present.empty())
    return;
  os << "\nTraits: ";
  llvm::interleaveComma(present, os);
  os << ".\n";
}

/// `linear(x, w, bias?, residual?)`, `concat(inputs...)`
static void printForm(const OpInfo &op, llvm::raw_ostream &os) {
  if (op.code == OpCode::Constant) {
    os << op.mnemonic << " dense<elements>";
    return;
  }
  bool bare = op.has(Terminator);
  os << op.mnemonic << (bare ? " " : "(");
  llvm::interleaveComma(op.operands, os, [&](const OperandSpec &s) {
    os << s.name;
    if (s.kind == OperandSpec::Optional)
      os << "?";
    else if (s.kind == OperandSpec::Variadic)
      os << "...";
  });
  os << (bare ? "" : ")");
}

static void printAttrs(const OpInfo &op, llvm::raw_ostream &os) {
  if (op.attrs.empty())
    return;
  os << "\n| attribute | kind | default | |\n| --- | --- | --- | --- |\n";
  for (const AttrSpec &a : op.attrs) {
    os << "| `" << a.name << "` | " << attrKindName(a.kind) << " | ";
    if (a.defaultValue)
      os << "`" << attrText(*a.defaultValue) << "`";
    else
      os << (a.optional ? "none" : "required");
    os << " | " << a.doc << " |\n";
  }
}

/// Words, in lines of at most 100 columns.
static void printWrapped(llvm::StringRef text, llvm::raw_ostream &os) {
  size_t column = 0;
  for (llvm::StringRef word : llvm::split(text, ' ')) {
    bool fits = column + 1 + word.size() <= 100;
    os << (column == 0 ? "" : fits ? " " : "\n") << word;
    column = column == 0 || !fits ? word.size() : column + 1 + word.size();
  }
  os << "\n";
}

void printOpDocs(llvm::raw_ostream &os) {
  os << "# Ops of the IR\n\n"
        "Written by `gpt2c-opt --print-op-docs` from the signatures in `ir/ops/`. `x?` may be "
        "absent\n"
        "(`none`), `x...` stands for any number of operands. The text form is described in "
        "`ir/Text.h`.\n";
  for (const OpInfo *op : allOps()) {
    os << "\n## " << op->mnemonic << "\n\n    ";
    printForm(*op, os);
    os << "\n\n";
    printWrapped(op->summary, os);
    printTraits(*op, os);
    printAttrs(*op, os);
  }
}

} // namespace gpt2c
