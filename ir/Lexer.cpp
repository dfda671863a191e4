#include "ir/Lexer.h"

#include "ir/Error.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MemoryBuffer.h"

namespace gpt2c {

static bool startsIdentifier(char c) { return llvm::isAlpha(c) || c == '_'; }
static bool continuesIdentifier(char c) { return llvm::isAlnum(c) || c == '_' || c == '.'; }

bool isIdentifier(llvm::StringRef s) {
  return !s.empty() && startsIdentifier(s[0]) && llvm::all_of(s, continuesIdentifier);
}

static llvm::StringRef spelling(Token::Kind kind) {
  switch (kind) {
  case Token::Eof:
    return "the end of the file";
  case Token::Arrow:
    return "'->'";
  case Token::LParen:
    return "'('";
  case Token::RParen:
    return "')'";
  case Token::LBrace:
    return "'{'";
  case Token::RBrace:
    return "'}'";
  case Token::LSquare:
    return "'['";
  case Token::RSquare:
    return "']'";
  case Token::Less:
    return "'<'";
  case Token::Greater:
    return "'>'";
  default:
    return "a token";
  }
}

void Lexer::skipBlanks() {
  while (position_ != end_) {
    if (llvm::isSpace(*position_)) {
      ++position_;
    } else if (*position_ == '/' && end_ - position_ > 1 && position_[1] == '/') {
      while (position_ != end_ && *position_ != '\n')
        ++position_;
    } else {
      return;
    }
  }
}

Token Lexer::make(Token::Kind kind, const char *start) const {
  Token t;
  t.kind = kind;
  t.text = llvm::StringRef(start, position_ - start);
  return t;
}

static Token invalid(Token t, llvm::StringRef message) {
  t.kind = Token::Invalid;
  t.value = message.str();
  return t;
}

Token Lexer::number(const char *start) {
  auto digits = [&] {
    const char *from = position_;
    while (position_ != end_ && llvm::isDigit(*position_))
      ++position_;
    return position_ != from;
  };
  Token::Kind kind = Token::Integer;
  bool wellFormed = true;
  if (*start == '0' && position_ != end_ && *position_ == 'x') {
    kind = Token::Bits;
    const char *from = ++position_;
    while (position_ != end_ && llvm::isHexDigit(*position_))
      ++position_;
    wellFormed = position_ != from;
  } else {
    digits();
    if (position_ != end_ && *position_ == '.') {
      kind = Token::Float;
      ++position_;
      wellFormed = digits();
    }
    if (position_ != end_ && (*position_ == 'e' || *position_ == 'E')) {
      kind = Token::Float;
      ++position_;
      if (position_ != end_ && (*position_ == '+' || *position_ == '-'))
        ++position_;
      wellFormed &= digits();
    }
  }
  wellFormed &= position_ == end_ || !continuesIdentifier(*position_);
  Token t = make(kind, start);
  return wellFormed ? t : invalid(t, "malformed number");
}

/// From the opening quote at `position_`. Escapes are two hex digits, \\ and \".
Token Lexer::string(Token::Kind kind, const char *start) {
  std::string value;
  for (++position_; position_ != end_ && *position_ != '\n'; ++position_) {
    char c = *position_;
    if (c == '"') {
      ++position_;
      Token t = make(kind, start);
      t.value = std::move(value);
      t.quoted = true;
      return t;
    }
    if (c != '\\') {
      value += c;
      continue;
    }
    if (end_ - position_ > 1 && (position_[1] == '\\' || position_[1] == '"')) {
      value += *++position_;
    } else if (end_ - position_ > 2 && llvm::isHexDigit(position_[1]) &&
               llvm::isHexDigit(position_[2])) {
      value += static_cast<char>(llvm::hexFromNibbles(position_[1], position_[2]));
      position_ += 2;
    } else {
      const char *escape = position_++;
      return invalid(make(kind, escape),
                     "unknown escape in a string: use \\\\, \\\" or two hex digits");
    }
  }
  return invalid(make(kind, start), "a string without its closing quote");
}

Token Lexer::name(Token::Kind kind, const char *start) {
  if (position_ != end_ && *position_ == '"')
    return string(kind, start);
  while (position_ != end_ && continuesIdentifier(*position_))
    ++position_;
  Token t = make(kind, start);
  t.value = t.text.drop_front().str();
  bool number = llvm::all_of(t.value, llvm::isDigit);
  if (t.value.empty() || (!isIdentifier(t.value) && !(number && kind == Token::ValueName)))
    return invalid(t, "a name is an identifier or a quoted string");
  return t;
}

Token Lexer::next() {
  skipBlanks();
  const char *start = position_;
  if (position_ == end_)
    return make(Token::Eof, start);
  char c = *position_;
  if (c == '"')
    return string(Token::String, start);
  ++position_;
  if (startsIdentifier(c)) {
    while (position_ != end_ && continuesIdentifier(*position_))
      ++position_;
    return make(Token::Identifier, start);
  }
  if (llvm::isDigit(c))
    return number(start);
  switch (c) {
  case '%':
    return name(Token::ValueName, start);
  case '@':
    return name(Token::GlobalName, start);
  case '(':
    return make(Token::LParen, start);
  case ')':
    return make(Token::RParen, start);
  case '{':
    return make(Token::LBrace, start);
  case '}':
    return make(Token::RBrace, start);
  case '[':
    return make(Token::LSquare, start);
  case ']':
    return make(Token::RSquare, start);
  case '<':
    return make(Token::Less, start);
  case '>':
    return make(Token::Greater, start);
  case ',':
    return make(Token::Comma, start);
  case ':':
    return make(Token::Colon, start);
  case '=':
    return make(Token::Equal, start);
  case '+':
    return make(Token::Plus, start);
  case '*':
    return make(Token::Star, start);
  case '-':
    if (position_ != end_ && *position_ == '>') {
      ++position_;
      return make(Token::Arrow, start);
    }
    return make(Token::Minus, start);
  default:
    return invalid(make(Token::Invalid, start), "a character that starts no token");
  }
}

/// Locations are pointers into the text, so that an empty one needs an address too.
static llvm::StringRef addressed(llvm::StringRef text) {
  return text.empty() ? llvm::StringRef("") : text;
}

TokenStream::TokenStream(llvm::StringRef text, llvm::StringRef bufferName)
    : lexer_(addressed(text)) {
  sources_.AddNewSourceBuffer(llvm::MemoryBuffer::getMemBuffer(addressed(text), bufferName,
                                                               /*RequiresNullTerminator=*/false),
                              llvm::SMLoc());
  token_ = lexer_.next();
}

Token TokenStream::take() {
  Token t = std::move(token_);
  token_ = lexer_.next();
  return t;
}

bool TokenStream::consume(Token::Kind k) {
  if (!at(k))
    return false;
  take();
  return true;
}

bool TokenStream::consumeWord(llvm::StringRef word) {
  if (!atWord(word))
    return false;
  take();
  return true;
}

bool TokenStream::expect(Token::Kind k, llvm::StringRef what) {
  return consume(k) ? false : unexpected(what);
}

bool TokenStream::expect(Token::Kind k, llvm::StringRef what, Token &taken) {
  if (!at(k))
    return unexpected(what);
  taken = take();
  return false;
}

bool TokenStream::commaSeparated(llvm::function_ref<bool()> item) {
  do {
    if (item())
      return true;
  } while (consume(Token::Comma));
  return false;
}

bool TokenStream::list(Token::Kind open, Token::Kind close, llvm::function_ref<bool()> item) {
  if (expect(open, spelling(open)))
    return true;
  if (consume(close))
    return false;
  std::string what = ("',' or " + spelling(close)).str();
  return commaSeparated(item) || expect(close, what);
}

bool TokenStream::error(llvm::SMLoc loc, const llvm::Twine &message) {
  if (diagnostic_.empty()) {
    llvm::raw_string_ostream os(diagnostic_);
    sources_.GetMessage(loc, llvm::SourceMgr::DK_Error, message)
        .print(nullptr, os, /*ShowColors=*/false);
  }
  return true;
}

bool TokenStream::unexpected(llvm::StringRef what) {
  if (at(Token::Invalid))
    return error(token_, token_.value);
  std::string found =
      at(Token::Eof) ? spelling(Token::Eof).str() : ("'" + token_.text.take_front(60) + "'").str();
  return error(token_, "expected " + what + ", found " + found);
}

llvm::Error TokenStream::takeError() {
  if (diagnostic_.empty())
    return llvm::Error::success();
  return llvm::make_error<SourceError>(ExitCode::InvalidModel, std::move(diagnostic_));
}

} // namespace gpt2c
