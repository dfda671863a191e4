#include "ir/Infer.h"
#include "ir/Literals.h"
#include "ir/Text.h"
#include "ir/Verifier.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"

#include <map>

namespace gpt2c {
namespace {

/// The mnemonic nearest to a misspelt one; empty when none is near.
llvm::StringRef nearestMnemonic(llvm::StringRef word) {
  unsigned best = std::max<unsigned>(2, word.size() / 3) + 1;
  llvm::StringRef nearest;
  for (const OpInfo *info : allOps()) {
    unsigned distance = info->mnemonic.edit_distance(word, /*AllowReplacements=*/true, best);
    if (distance < best) {
      best = distance;
      nearest = info->mnemonic;
    }
  }
  return nearest;
}

class Parser {
public:
  Parser(llvm::StringRef text, llvm::StringRef bufferName, const ParseOptions &options)
      : s_(text, bufferName), options_(options), module_(std::make_unique<Module>()) {}

  llvm::Expected<std::unique_ptr<Module>> run() {
    if (parseAll())
      return s_.takeError();
    return std::move(module_);
  }

private:
  struct DeclaredResult {
    Type type;
    llvm::SMLoc loc;
  };
  /// What stands between `constant` and its type.
  struct Payload {
    std::optional<DenseLiteral> literal;
    bool weight = false;
    uint64_t hash = 0;
    llvm::SMLoc loc;
  };

  // All return true after reporting an error, as the stream does.
  bool parseAll() {
    if (s_.atWord("module") && parseHeader())
      return true;
    while (!s_.at(Token::Eof))
      if (!s_.atWord("func") ? s_.unexpected("a function") : parseFunction())
        return true;
    return false;
  }

  /// 'module' @name [{key = "value", ...}]
  bool parseHeader() {
    s_.take();
    Token name;
    if (s_.expect(Token::GlobalName, "the module's name", name))
      return true;
    module_->name = std::move(name.value);
    return s_.at(Token::LBrace) && s_.list(Token::LBrace, Token::RBrace, [&] {
      if (!s_.at(Token::Identifier) && !s_.at(Token::String))
        return s_.unexpected("a property's name");
      Token key = s_.take(), value;
      if (s_.expect(Token::Equal, "'='") || s_.expect(Token::String, "a string in quotes", value))
        return true;
      module_->properties.emplace_back(key.is(Token::String) ? key.value : key.text.str(),
                                       std::move(value.value));
      return false;
    });
  }

  /// 'func' @name '(' arguments ')' '->' '(' results ')' ['where' limits] '{' ops '}'
  bool parseFunction() {
    s_.take();
    Token name;
    if (s_.expect(Token::GlobalName, "the function's name", name))
      return true;
    if (module_->function(name.value))
      return s_.error(name, "a second function @" + name.value);
    function_ = module_->addFunction(name.value);
    values_.clear();
    results_.clear();
    if (parseArguments() || s_.expect(Token::Arrow, "'->'") || parseResults() || parseLimits() ||
        s_.expect(Token::LBrace, "'{'"))
      return true;
    while (!s_.at(Token::RBrace)) {
      if (s_.at(Token::Eof))
        return s_.unexpected("an op or '}'");
      if (function_->terminator())
        return s_.error(s_.peek(), "an op after return");
      if (parseOp())
        return true;
    }
    if (!function_->terminator())
      return s_.error(s_.peek(), "the function does not end with return");
    s_.take();
    return false;
  }

  bool parseArguments() {
    return s_.list(Token::LParen, Token::RParen, [&] {
      Token name;
      Type type;
      if (s_.expect(Token::ValueName, "an argument", name) || s_.expect(Token::Colon, "':'") ||
          parseType(s_, type))
        return true;
      return define(name, function_->addArgument(std::move(type), ""));
    });
  }

  bool parseResults() {
    return s_.list(Token::LParen, Token::RParen, [&] {
      DeclaredResult r;
      std::string name;
      if (s_.at(Token::ValueName)) {
        name = s_.take().value;
        if (s_.expect(Token::Colon, "':'"))
          return true;
      }
      r.loc = s_.peek().loc();
      if (parseType(s_, r.type))
        return true;
      results_.push_back(std::move(r));
      if (!name.empty()) {
        function_->resultNames.resize(results_.size() - 1);
        function_->resultNames.push_back(std::move(name));
      }
      return false;
    });
  }

  /// dim '<=' integer, ...
  bool parseLimits() {
    return s_.consumeWord("where") && s_.commaSeparated([&] {
      Dim sum, most;
      const Token at = s_.peek();
      if (parseDim(s_, sum) || s_.expect(Token::Less, "'<='") || s_.expect(Token::Equal, "'<='"))
        return true;
      const Token number = s_.peek();
      if (parseDim(s_, most))
        return true;
      if (!most.isConstant())
        return s_.error(number, "a limit is a number");
      if (!function_->limits.atMost(sum, *most.constant()))
        return s_.error(at, "no limit of a sum of symbols, or one that others imply");
      return false;
    });
  }

  /// Enters a value under the name the text gives it. A number names the value within the text
  /// only.
  bool define(const Token &name, Value *v) {
    if (!values_.try_emplace(name.text, v).second)
      return s_.error(name, name.text + " is defined twice");
    if (name.quoted || !llvm::isDigit(name.value[0]))
      v->name = name.value;
    return false;
  }

  /// An operand's name, or 'none'.
  bool parseOperand(llvm::SmallVectorImpl<Value *> &operands) {
    if (s_.consumeWord("none")) {
      operands.push_back(nullptr);
      return false;
    }
    Token name;
    if (s_.expect(Token::ValueName, "an operand: a value or none", name))
      return true;
    auto it = values_.find(name.text);
    if (it == values_.end())
      return s_.error(name, name.text + " is not defined before its use");
    operands.push_back(it->second);
    return false;
  }

  /// [%a, %b '='] mnemonic ['(' operands ')' | payload] [attributes] [':' types] [locations]
  bool parseOp() {
    llvm::SmallVector<Token, 2> names;
    if (s_.at(Token::ValueName)) {
      if (s_.commaSeparated([&] {
            return s_.expect(Token::ValueName, "a value's name", names.emplace_back());
          }) ||
          s_.expect(Token::Equal, "'='"))
        return true;
    }
    Token mnemonic;
    if (s_.expect(Token::Identifier, "an op", mnemonic))
      return true;
    const OpInfo *info = findOp(mnemonic.text);
    if (!info) {
      llvm::StringRef near = nearestMnemonic(mnemonic.text);
      return s_.error(mnemonic, "there is no op '" + mnemonic.text + "'" +
                                    (near.empty() ? "" : "; did you mean '" + near + "'?"));
    }
    llvm::SmallVector<Value *, 4> operands;
    Payload payload;
    if (info->code == OpCode::Constant ? parsePayload(payload) : parseOperands(*info, operands))
      return true;
    Op *op = function_->insert(info->code, operands, names.size(), nullptr);
    if (parseAttributes(*op))
      return true;
    if (llvm::Error e = verifySignature(*op))
      return s_.error(mnemonic, llvm::toString(std::move(e)));
    if (op->info().has(Terminator) ? checkReturn(*op, mnemonic)
                                   : parseTypes(*op, mnemonic, payload))
      return true;
    for (auto [i, name] : llvm::enumerate(names))
      if (define(name, op->result(i)))
        return true;
    return s_.atWord("loc") && parseLocations(*op);
  }

  bool parseOperands(const OpInfo &info, llvm::SmallVectorImpl<Value *> &operands) {
    if (!info.has(Terminator))
      return s_.list(Token::LParen, Token::RParen, [&] { return parseOperand(operands); });
    // The operands of a terminator have no parentheses.
    if (!s_.at(Token::ValueName) && !s_.atWord("none"))
      return false;
    return s_.commaSeparated([&] { return parseOperand(operands); });
  }

  bool parseAttributes(Op &op) {
    return s_.at(Token::LBrace) && s_.list(Token::LBrace, Token::RBrace, [&] {
      Token name;
      if (s_.expect(Token::Identifier, "an attribute's name", name))
        return true;
      const AttrSpec *spec = op.info().attr(name.text);
      if (!spec) {
        op.setAttr(name.text, true);
        return s_.error(name, llvm::toString(verifySignature(op)));
      }
      if (llvm::any_of(op.givenAttrs(), [&](auto &a) { return a.name == name.text; }))
        return s_.error(name, "attribute '" + name.text + "' is given twice");
      Attr value;
      if (s_.expect(Token::Equal, "'='") || parseAttr(s_, spec->kind, value))
        return true;
      op.setAttr(name.text, std::move(value));
      return false;
    });
  }

  /// ':' types, which must be those that inference gives.
  bool parseTypes(Op &op, const Token &mnemonic, const Payload &payload) {
    llvm::SmallVector<DeclaredResult, 2> written;
    if (s_.expect(Token::Colon, "':' and the result types") || s_.commaSeparated([&] {
          written.emplace_back().loc = s_.peek().loc();
          return parseType(s_, written.back().type);
        }))
      return true;
    if (written.size() != op.numResults())
      return s_.error(written.front().loc, llvm::Twine(written.size()) + " types for " +
                                               llvm::Twine(op.numResults()) + " results");
    // Inference keeps what is written where nothing is known: dimensions that depend on data,
    // elided constants.
    for (unsigned i = 0; i < written.size(); ++i)
      op.result(i)->type = written[i].type;
    if (op.is(OpCode::Constant) && materialise(op, payload))
      return true;
    if (llvm::Error e = inferOp(op))
      return s_.error(mnemonic, llvm::toString(std::move(e)));
    for (unsigned i = 0; i < written.size(); ++i)
      if (op.result(i)->type != written[i].type)
        return s_.error(written[i].loc, "the type written is " + written[i].type.str() +
                                            ", inference gives " + op.result(i)->type.str());
    return false;
  }

  bool checkReturn(Op &op, const Token &mnemonic) {
    if (op.numOperands() != results_.size())
      return s_.error(mnemonic, "returns " + llvm::Twine(op.numOperands()) +
                                    " values, the function declares " +
                                    llvm::Twine(results_.size()));
    for (auto [v, declared] : llvm::zip_equal(op.operands(), results_)) {
      if (!v)
        return s_.error(mnemonic, "returns none");
      if (v->type != declared.type)
        return s_.error(declared.loc, "the type written is " + declared.type.str() +
                                          ", the function returns " + v->type.str());
    }
    return false;
  }

  /// dense<...> | elided<"hash"> | weight<"hash">
  bool parsePayload(Payload &out) {
    bool dense = s_.consumeWord("dense");
    out.weight = !dense && s_.consumeWord("weight");
    out.loc = s_.peek().loc();
    if (!dense && !out.weight && !s_.consumeWord("elided"))
      return s_.unexpected("dense, weight or elided");
    if (s_.expect(Token::Less, "'<'"))
      return true;
    if (dense ? parseDense(s_, out.literal.emplace()) : parseHash(s_, out.hash))
      return true;
    return s_.expect(Token::Greater, "'>'");
  }

  /// Gives a constant its bytes, once its type is known.
  bool materialise(Op &op, const Payload &payload) {
    const Type &type = op.result()->type;
    if (payload.literal) {
      Tensor t;
      if (toTensor(s_, *payload.literal, type, t))
        return true;
      op.constant = pool_.share(std::move(t));
      return false;
    }
    if (!payload.weight) {
      op.setAttr("elided", hashText(payload.hash));
      return false;
    }
    auto [it, isNew] = weights_.try_emplace(payload.hash);
    if (isNew && options_.weights)
      it->second = options_.weights(payload.hash, type);
    const Tensor &t = it->second;
    if (!t.valid())
      return s_.error(payload.loc, "the weight " + hashText(payload.hash) + " is not there");
    bool fits = t.dtype() == type.dtype && t.rank() == type.rank();
    for (unsigned i = 0; fits && i < t.rank(); ++i)
      fits = type.shape[i] == Dim(t.dim(i));
    if (!fits)
      return s_.error(payload.loc, "the weight " + hashText(payload.hash) +
                                       " has another type than " + type.str());
    op.constant = t;
    return false;
  }

  /// loc("a", "b")
  bool parseLocations(Op &op) {
    s_.take();
    llvm::SmallVector<std::string, 2> names;
    if (s_.list(Token::LParen, Token::RParen, [&] {
          Token name;
          if (s_.expect(Token::String, "a node's name in quotes", name))
            return true;
          names.push_back(std::move(name.value));
          return false;
        }))
      return true;
    op.addLocations(llvm::SmallVector<llvm::StringRef, 2>(names.begin(), names.end()));
    return false;
  }

  TokenStream s_;
  const ParseOptions &options_;
  std::unique_ptr<Module> module_;
  Function *function_ = nullptr;
  llvm::StringMap<Value *> values_; // by the spelling in the text
  llvm::SmallVector<DeclaredResult, 2> results_;
  std::map<uint64_t, Tensor> weights_;
  ConstantPool pool_;
};

} // namespace

llvm::Expected<std::unique_ptr<Module>>
parseModule(llvm::StringRef text, llvm::StringRef bufferName, const ParseOptions &options) {
  return Parser(text, bufferName, options).run();
}

} // namespace gpt2c
