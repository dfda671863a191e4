// The part of the parser that reads expressions, and what the part for statements shares with it.
#pragma once

#include "runtime/text/jinja/Ast.h"
#include "runtime/text/jinja/Lexer.h"

#include <algorithm>
#include <array>

namespace gpt2c::rt::jinja {

constexpr int kDeepestSyntax = 100;

class ExpressionParser {
protected:
  using Kind = Expression::Kind;

  explicit ExpressionParser(std::string_view source) : tokens_(tokenize(source)) {}

  /// Counts how deep the parser is within itself.
  class Depth {
  public:
    explicit Depth(ExpressionParser &parser) : parser_(parser) {
      if (++parser.depth_ > kDeepestSyntax)
        parser.fail("the template is nested too deeply");
    }
    ~Depth() { --parser_.depth_; }
    Depth(const Depth &) = delete;

  private:
    ExpressionParser &parser_;
  };

  [[noreturn]] void fail(const std::string &message) const { throw Error{message, peek().line}; }

  const Token &peek(std::size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  bool isOperator(std::string_view text) const {
    return peek().kind == Token::Kind::Operator && peek().text == text;
  }
  bool isName(std::string_view text) const {
    return peek().kind == Token::Kind::Name && peek().text == text;
  }
  bool takeOperator(std::string_view text) { return isOperator(text) && ++at_; }
  bool takeName(std::string_view text) { return isName(text) && ++at_; }
  void expectOperator(std::string_view text) {
    if (!takeOperator(text))
      fail("expected " + std::string(text) + " ahead of " + shown());
  }
  std::string shown() const {
    return peek().text.empty() ? "the end of the tag" : "\"" + peek().text + "\"";
  }
  std::string expectName() {
    if (peek().kind != Token::Kind::Name)
      fail("expected a name ahead of " + shown());
    return tokens_[at_++].text;
  }
  void expectTagEnd() {
    if (peek().kind != Token::Kind::TagEnd)
      fail("expected %} ahead of " + shown());
    ++at_;
  }

  ExpressionPtr make(Kind kind, std::string name = "") const;
  ExpressionPtr literal(Value value) const;
  ExpressionPtr binary(std::string name, ExpressionPtr left, ExpressionPtr right) const;
  /// An expression, or several between commas.
  ExpressionPtr parseTuple(bool withCondition = true);
  ExpressionPtr parseExpression();
  ExpressionPtr parseOr();
  ExpressionPtr parseAnd();
  ExpressionPtr parseNot();
  std::string takeComparison();
  ExpressionPtr parseCompare();
  template <std::size_t N, typename Next>
  ExpressionPtr parseLeft(const std::array<const char *, N> &operators, Next next);
  ExpressionPtr parseSum();
  ExpressionPtr parseJoin();
  ExpressionPtr parseProduct();
  ExpressionPtr parsePower();
  ExpressionPtr parseUnary(bool withFilters);
  ExpressionPtr parsePrimary();
  /// Behind "(": an expression in brackets, or a tuple.
  ExpressionPtr parseBrackets();
  ExpressionPtr parseList();
  ExpressionPtr parseDict();
  ExpressionPtr parsePostfix(ExpressionPtr value);
  ExpressionPtr parseSubscript(ExpressionPtr value);
  void parseArguments(Expression &made);
  ExpressionPtr parseCall(ExpressionPtr value);
  std::string parseDottedName();
  ExpressionPtr parseFilter(ExpressionPtr value);
  ExpressionPtr parseTest(ExpressionPtr value);
  /// Filters, tests and calls behind a value.
  ExpressionPtr parseFilters(ExpressionPtr value);

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

} // namespace gpt2c::rt::jinja
