// Tokens of the text form, and the stream the parser reads them from.
#pragma once

#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/SourceMgr.h"

#include <string>

namespace gpt2c {

struct Token {
  enum Kind : uint8_t {
    Eof,
    Invalid,    // reported when the parser meets it
    Identifier, // add, f32, true
    Integer,    // 12
    Float,      // 1.5, 1e-05
    Bits,       // 0x7fc00001
    String,     // "text"
    ValueName,  // %x, %12, %"a b"
    GlobalName, // @main, @"a b"
    Arrow,      // ->
    LParen,
    RParen,
    LBrace,
    RBrace,
    LSquare,
    RSquare,
    Less,
    Greater,
    Comma,
    Colon,
    Equal,
    Plus,
    Minus,
    Star,
  };
  Kind kind = Eof;
  llvm::StringRef text; // as written
  std::string value; // String, ValueName, GlobalName: without quotes, escapes and sigil; Invalid:
                     // what is wrong
  bool quoted = false;

  bool is(Kind k) const { return kind == k; }
  bool isWord(llvm::StringRef word) const { return kind == Identifier && text == word; }
  llvm::SMLoc loc() const { return llvm::SMLoc::getFromPointer(text.begin()); }
};

/// [A-Za-z_][A-Za-z0-9_.]*
bool isIdentifier(llvm::StringRef s);

class Lexer {
public:
  explicit Lexer(llvm::StringRef text) : position_(text.begin()), end_(text.end()) {}
  Token next();

private:
  void skipBlanks();
  Token make(Token::Kind kind, const char *start) const;
  Token number(const char *start);
  Token string(Token::Kind kind, const char *start);
  Token name(Token::Kind kind, const char *start);

  const char *position_;
  const char *end_;
};

/// A stream with one token of lookahead that keeps the first error. Members that return bool return
/// true on error, as do the parser's functions.
class TokenStream {
public:
  TokenStream(llvm::StringRef text, llvm::StringRef bufferName);

  const Token &peek() const { return token_; }
  bool at(Token::Kind k) const { return token_.is(k); }
  bool atWord(llvm::StringRef word) const { return token_.isWord(word); }
  Token take();
  /// Takes the token when it is of this kind.
  bool consume(Token::Kind k);
  bool consumeWord(llvm::StringRef word);
  bool expect(Token::Kind k, llvm::StringRef what);
  bool expect(Token::Kind k, llvm::StringRef what, Token &taken);
  /// item (',' item)*
  bool commaSeparated(llvm::function_ref<bool()> item);
  /// open [item (',' item)*] close
  bool list(Token::Kind open, Token::Kind close, llvm::function_ref<bool()> item);

  bool error(llvm::SMLoc loc, const llvm::Twine &message);
  bool error(const Token &at, const llvm::Twine &message) { return error(at.loc(), message); }
  /// "expected <what>, found ..." at the present token, or what is wrong with the token itself.
  bool unexpected(llvm::StringRef what);
  llvm::Error takeError();

private:
  llvm::SourceMgr sources_;
  Lexer lexer_;
  Token token_;
  std::string diagnostic_; // rendered; empty: no error yet
};

} // namespace gpt2c
