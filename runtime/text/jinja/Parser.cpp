#include "runtime/text/jinja/Parser.h"

#include "runtime/text/jinja/Lexer.h"

#include <algorithm>
#include <array>
#include <initializer_list>

namespace gpt2c::rt::jinja {
namespace {

using Kind = Expression::Kind;
using StatementPtr = std::unique_ptr<Statement>;

constexpr int kDeepestSyntax = 100;

class Parser {
public:
  explicit Parser(std::string_view source) : tokens_(tokenize(source)) {}

  Block run() {
    Block block = parseBlock({});
    if (peek().kind != Token::Kind::End)
      fail("{% " + peek(1).text + " %} closes nothing");
    return block;
  }

private:
  /// Counts how deep the parser is within itself.
  class Depth {
  public:
    explicit Depth(Parser &parser) : parser_(parser) {
      if (++parser.depth_ > kDeepestSyntax)
        parser.fail("the template is nested too deeply");
    }
    ~Depth() { --parser_.depth_; }
    Depth(const Depth &) = delete;

  private:
    Parser &parser_;
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

  // Statements

  /// Up to a tag of one of these names, which is left.
  Block parseBlock(std::initializer_list<std::string_view> ends) {
    const Depth depth(*this);
    Block block;
    for (;;) {
      const Token &token = peek();
      if (token.kind == Token::Kind::Text) {
        block.push_back(make(Statement::Kind::Text));
        block.back()->text = token.text;
        ++at_;
      } else if (token.kind == Token::Kind::PrintBegin) {
        ++at_;
        block.push_back(make(Statement::Kind::Print));
        block.back()->expression = parseTuple();
        if (peek().kind != Token::Kind::PrintEnd)
          fail("expected }} ahead of " + shown());
        ++at_;
      } else if (token.kind == Token::Kind::TagBegin && !isEnd(ends)) {
        ++at_;
        block.push_back(parseStatement());
      } else {
        return block;
      }
    }
  }
  bool isEnd(std::initializer_list<std::string_view> ends) const {
    if (peek(1).kind != Token::Kind::Name)
      return true;
    const std::string &name = peek(1).text;
    return std::ranges::count(ends, name) || name.starts_with("end") || name == "else" ||
           name == "elif";
  }
  /// {% name %}
  void expectTag(std::string_view name) {
    if (peek().kind != Token::Kind::TagBegin || peek(1).text != name)
      fail("expected {% " + std::string(name) + " %}");
    at_ += 2;
    expectTagEnd();
  }

  StatementPtr make(Statement::Kind kind) const {
    auto made = std::make_unique<Statement>();
    made->kind = kind;
    made->line = peek().line;
    return made;
  }

  StatementPtr parseStatement() {
    const std::string name = expectName();
    if (name == "if")
      return parseIf();
    if (name == "for")
      return parseFor();
    if (name == "set")
      return parseSet();
    if (name == "macro")
      return parseMacro();
    if (name == "call")
      return parseCallBlock();
    if (name == "filter")
      return parseFilterBlock();
    if (name == "generation") {
      StatementPtr made = make(Statement::Kind::Body);
      expectTagEnd();
      made->body = parseBlock({"endgeneration"});
      expectTag("endgeneration");
      return made;
    }
    if (name == "break" || name == "continue") {
      if (!loops_)
        fail(name + " outside of a loop");
      StatementPtr made =
          make(name == "break" ? Statement::Kind::Break : Statement::Kind::Continue);
      expectTagEnd();
      return made;
    }
    fail("the statement " + name + " is not known");
  }

  StatementPtr parseIf() {
    StatementPtr made = make(Statement::Kind::If);
    for (;;) {
      ExpressionPtr condition = parseTuple();
      expectTagEnd();
      made->branches.emplace_back(std::move(condition), parseBlock({"elif", "else", "endif"}));
      if (peek(1).text != "elif")
        break;
      at_ += 2;
    }
    if (peek(1).text == "else") {
      expectTag("else");
      made->other = parseBlock({"endif"});
    }
    expectTag("endif");
    return made;
  }

  std::vector<std::string> parseTargets() {
    const bool bracket = takeOperator("(");
    std::vector<std::string> targets = {expectName()};
    while (takeOperator(","))
      if (peek().kind == Token::Kind::Name && !isName("in"))
        targets.push_back(expectName());
    if (bracket)
      expectOperator(")");
    return targets;
  }

  StatementPtr parseFor() {
    StatementPtr made = make(Statement::Kind::For);
    made->targets = parseTargets();
    if (!takeName("in"))
      fail("expected \"in\" ahead of " + shown());
    made->expression = parseTuple(false);
    if (takeName("if"))
      made->condition = parseExpression();
    if (isName("recursive"))
      fail("recursive loops are not known");
    expectTagEnd();
    ++loops_;
    made->body = parseBlock({"else", "endfor"});
    --loops_;
    if (peek(1).text == "else") {
      expectTag("else");
      made->other = parseBlock({"endfor"});
    }
    expectTag("endfor");
    return made;
  }

  StatementPtr parseSet() {
    StatementPtr made = make(Statement::Kind::Set);
    made->targets = parseTargets();
    if (made->targets.size() == 1 && takeOperator("."))
      made->text = expectName();
    if (takeOperator("=")) {
      made->expression = parseTuple();
      expectTagEnd();
      return made;
    }
    if (made->targets.size() != 1)
      fail("a block is set to one name");
    made->kind = Statement::Kind::SetBlock;
    made->expression = parseFilters(make(Kind::Name, ""));
    expectTagEnd();
    made->body = parseBlock({"endset"});
    expectTag("endset");
    return made;
  }

  /// (a, b=1)
  void parseParameters(Statement &made) {
    expectOperator("(");
    while (!isOperator(")")) {
      made.targets.push_back(expectName());
      if (takeOperator("="))
        made.defaults.push_back(parseExpression());
      else if (!made.defaults.empty())
        fail("a parameter without default behind one with it");
      if (!takeOperator(","))
        break;
    }
    expectOperator(")");
  }

  Block parseInner(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Block block = parseBlock({end});
    loops_ = loops;
    expectTag(end);
    return block;
  }

  StatementPtr parseMacro() {
    StatementPtr made = make(Statement::Kind::Macro);
    made->text = expectName();
    parseParameters(*made);
    expectTagEnd();
    made->body = parseInner("endmacro");
    return made;
  }

  StatementPtr parseCallBlock() {
    StatementPtr made = make(Statement::Kind::CallBlock);
    if (isOperator("("))
      parseParameters(*made);
    made->expression = parseExpression();
    if (made->expression->kind != Kind::Call)
      fail("expected a call");
    expectTagEnd();
    made->body = parseInner("endcall");
    return made;
  }

  StatementPtr parseFilterBlock() {
    StatementPtr made = make(Statement::Kind::FilterBlock);
    made->expression = parseFilter(make(Kind::Name, ""));
    made->expression = parseFilters(std::move(made->expression));
    expectTagEnd();
    made->body = parseBlock({"endfilter"});
    expectTag("endfilter");
    return made;
  }

  // Expressions

  ExpressionPtr make(Kind kind, std::string name = "") const {
    auto made = std::make_unique<Expression>();
    made->kind = kind;
    made->line = peek().line;
    made->name = std::move(name);
    return made;
  }
  ExpressionPtr literal(Value value) const {
    ExpressionPtr made = make(Kind::Literal);
    made->value = std::move(value);
    return made;
  }
  ExpressionPtr binary(std::string name, ExpressionPtr left, ExpressionPtr right) const {
    ExpressionPtr made = make(Kind::Binary, std::move(name));
    made->children.push_back(std::move(left));
    made->children.push_back(std::move(right));
    return made;
  }

  /// An expression, or several between commas.
  ExpressionPtr parseTuple(bool withCondition = true) {
    auto one = [&] { return withCondition ? parseExpression() : parseOr(); };
    ExpressionPtr first = one();
    if (!isOperator(","))
      return first;
    ExpressionPtr tuple = make(Kind::Tuple);
    tuple->children.push_back(std::move(first));
    while (takeOperator(",")) {
      if (peek().kind == Token::Kind::TagEnd || peek().kind == Token::Kind::PrintEnd)
        break;
      tuple->children.push_back(one());
    }
    return tuple;
  }

  ExpressionPtr parseExpression() {
    const Depth depth(*this);
    ExpressionPtr value = parseOr();
    while (takeName("if")) {
      ExpressionPtr made = make(Kind::Conditional);
      made->children.push_back(std::move(value));
      made->children.push_back(parseOr());
      made->children.push_back(takeName("else") ? parseExpression() : nullptr);
      value = std::move(made);
    }
    return value;
  }

  ExpressionPtr parseOr() {
    ExpressionPtr left = parseAnd();
    while (takeName("or"))
      left = binary("or", std::move(left), parseAnd());
    return left;
  }
  ExpressionPtr parseAnd() {
    ExpressionPtr left = parseNot();
    while (takeName("and"))
      left = binary("and", std::move(left), parseNot());
    return left;
  }
  ExpressionPtr parseNot() {
    const Depth depth(*this);
    if (!isName("not"))
      return parseCompare();
    ExpressionPtr made = make(Kind::Unary, "not");
    ++at_;
    made->children.push_back(parseNot());
    return made;
  }

  std::string takeComparison() {
    for (const char *op : {"==", "!=", "<=", ">=", "<", ">"})
      if (takeOperator(op))
        return op;
    if (takeName("in"))
      return "in";
    if (isName("not") && peek(1).kind == Token::Kind::Name && peek(1).text == "in") {
      at_ += 2;
      return "not in";
    }
    return "";
  }
  ExpressionPtr parseCompare() {
    ExpressionPtr left = parseSum();
    std::string op = takeComparison();
    if (op.empty())
      return left;
    ExpressionPtr made = make(Kind::Compare);
    made->children.push_back(std::move(left));
    for (; !op.empty(); op = takeComparison()) {
      made->operators.push_back(op);
      made->children.push_back(parseSum());
    }
    return made;
  }

  template <std::size_t N, typename Next>
  ExpressionPtr parseLeft(const std::array<const char *, N> &operators, Next next) {
    ExpressionPtr left = next();
    for (bool found = true; found;) {
      found = false;
      for (const char *op : operators)
        if (takeOperator(op)) {
          left = binary(op, std::move(left), next());
          found = true;
          break;
        }
    }
    return left;
  }
  ExpressionPtr parseSum() {
    return parseLeft(std::array{"+", "-"}, [&] { return parseJoin(); });
  }
  ExpressionPtr parseJoin() {
    return parseLeft(std::array{"~"}, [&] { return parseProduct(); });
  }
  ExpressionPtr parseProduct() {
    return parseLeft(std::array{"*", "//", "/", "%"}, [&] { return parsePower(); });
  }
  ExpressionPtr parsePower() {
    return parseLeft(std::array{"**"}, [&] { return parseUnary(true); });
  }

  ExpressionPtr parseUnary(bool withFilters) {
    const Depth depth(*this);
    ExpressionPtr value;
    if (isOperator("-") || isOperator("+")) {
      value = make(Kind::Unary, peek().text);
      ++at_;
      value->children.push_back(parseUnary(false));
    } else {
      value = parsePrimary();
    }
    value = parsePostfix(std::move(value));
    return withFilters ? parseFilters(std::move(value)) : std::move(value);
  }

  ExpressionPtr parsePrimary() {
    const Token token = peek();
    switch (token.kind) {
    case Token::Kind::Name:
      ++at_;
      if (token.text == "true" || token.text == "True")
        return literal(true);
      if (token.text == "false" || token.text == "False")
        return literal(false);
      if (token.text == "none" || token.text == "None")
        return literal(None{});
      return make(Kind::Name, token.text);
    case Token::Kind::String: {
      std::string text;
      while (peek().kind == Token::Kind::String)
        text += tokens_[at_++].text;
      return literal(text);
    }
    case Token::Kind::Integer:
      ++at_;
      return literal(std::int64_t(std::stoll(token.text)));
    case Token::Kind::Float:
      ++at_;
      return literal(std::strtod(token.text.c_str(), nullptr));
    default:
      break;
    }
    if (takeOperator("("))
      return parseBrackets();
    if (takeOperator("["))
      return parseList();
    if (takeOperator("{"))
      return parseDict();
    fail("expected a value ahead of " + shown());
  }

  /// Behind "(": an expression in brackets, or a tuple.
  ExpressionPtr parseBrackets() {
    ExpressionPtr tuple = make(Kind::Tuple);
    bool comma = false;
    while (!isOperator(")")) {
      tuple->children.push_back(parseExpression());
      if (!takeOperator(","))
        break;
      comma = true;
    }
    expectOperator(")");
    if (tuple->children.size() == 1 && !comma)
      return std::move(tuple->children[0]);
    return tuple;
  }
  ExpressionPtr parseList() {
    ExpressionPtr list = make(Kind::List);
    while (!isOperator("]")) {
      list->children.push_back(parseExpression());
      if (!takeOperator(","))
        break;
    }
    expectOperator("]");
    return list;
  }
  ExpressionPtr parseDict() {
    ExpressionPtr dict = make(Kind::Dict);
    while (!isOperator("}")) {
      dict->children.push_back(parseExpression());
      expectOperator(":");
      dict->children.push_back(parseExpression());
      if (!takeOperator(","))
        break;
    }
    expectOperator("}");
    return dict;
  }

  ExpressionPtr parsePostfix(ExpressionPtr value) {
    for (;;) {
      if (takeOperator(".")) {
        ExpressionPtr made = make(Kind::Attribute);
        if (peek().kind == Token::Kind::Integer) {
          made->kind = Kind::Item;
          made->children.push_back(std::move(value));
          made->children.push_back(parsePrimary());
        } else {
          made->name = expectName();
          made->children.push_back(std::move(value));
        }
        value = std::move(made);
      } else if (takeOperator("[")) {
        value = parseSubscript(std::move(value));
      } else if (isOperator("(")) {
        value = parseCall(std::move(value));
      } else {
        return value;
      }
    }
  }

  ExpressionPtr parseSubscript(ExpressionPtr value) {
    ExpressionPtr made = make(Kind::Item);
    made->children.push_back(std::move(value));
    ExpressionPtr parts[3];
    std::size_t part = 0;
    for (;;) {
      if (!isOperator(":") && !isOperator("]"))
        parts[part] = parseTuple();
      if (part == 2 || !takeOperator(":"))
        break;
      ++part;
    }
    expectOperator("]");
    if (part == 0 && !parts[0])
      fail("an index is missing");
    made->kind = part ? Kind::Slice : Kind::Item;
    for (std::size_t i = 0; i < (part ? 3u : 1u); ++i)
      made->children.push_back(std::move(parts[i]));
    return made;
  }

  void parseArguments(Expression &made) {
    expectOperator("(");
    while (!isOperator(")")) {
      if (peek().kind == Token::Kind::Name && peek(1).kind == Token::Kind::Operator &&
          peek(1).text == "=") {
        std::string name = expectName();
        ++at_;
        made.named.emplace_back(std::move(name), parseExpression());
      } else if (isOperator("*") || isOperator("**")) {
        fail("arguments that are spread are not known");
      } else if (!made.named.empty()) {
        fail("an argument without a name behind one with it");
      } else {
        made.children.push_back(parseExpression());
      }
      if (!takeOperator(","))
        break;
    }
    expectOperator(")");
  }
  ExpressionPtr parseCall(ExpressionPtr value) {
    ExpressionPtr made = make(Kind::Call);
    made->children.push_back(std::move(value));
    parseArguments(*made);
    return made;
  }

  std::string parseDottedName() {
    std::string name = expectName();
    while (takeOperator("."))
      name += "." + expectName();
    return name;
  }
  ExpressionPtr parseFilter(ExpressionPtr value) {
    ExpressionPtr made = make(Kind::Filter);
    made->name = parseDottedName();
    made->children.push_back(std::move(value));
    if (isOperator("("))
      parseArguments(*made);
    return made;
  }
  ExpressionPtr parseTest(ExpressionPtr value) {
    const bool negated = takeName("not");
    ExpressionPtr made = make(Kind::Test);
    made->name = parseDottedName();
    made->children.push_back(std::move(value));
    const bool takes = peek().kind == Token::Kind::String || peek().kind == Token::Kind::Integer ||
                       peek().kind == Token::Kind::Float || isOperator("[") || isOperator("{") ||
                       (peek().kind == Token::Kind::Name && !isName("else") && !isName("or") &&
                        !isName("and") && !isName("if") && !isName("in") && !isName("not"));
    if (isOperator("(")) {
      parseArguments(*made);
    } else if (takes) {
      if (isName("is"))
        fail("tests cannot be chained");
      made->children.push_back(parsePostfix(parsePrimary()));
    }
    if (!negated)
      return made;
    ExpressionPtr inverse = make(Kind::Unary, "not");
    inverse->children.push_back(std::move(made));
    return inverse;
  }
  /// Filters, tests and calls behind a value.
  ExpressionPtr parseFilters(ExpressionPtr value) {
    for (;;) {
      if (takeOperator("|"))
        value = parseFilter(std::move(value));
      else if (takeName("is"))
        value = parseTest(std::move(value));
      else if (isOperator("("))
        value = parseCall(std::move(value));
      else
        return value;
    }
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0, loops_ = 0;
};

} // namespace

Block parse(std::string_view source) { return Parser(source).run(); }

} // namespace gpt2c::rt::jinja
