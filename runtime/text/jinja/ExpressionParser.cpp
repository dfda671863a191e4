#include "runtime/text/jinja/ExpressionParser.h"

namespace gpt2c::rt::jinja {

ExpressionPtr ExpressionParser::make(Kind kind, std::string name) const {
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->line = peek().line;
  made->name = std::move(name);
  return made;
}

ExpressionPtr ExpressionParser::literal(Value value) const {
  ExpressionPtr made = make(Kind::Literal);
  made->value = std::move(value);
  return made;
}

ExpressionPtr ExpressionParser::binary(std::string name, ExpressionPtr left,
                                       ExpressionPtr right) const {
  ExpressionPtr made = make(Kind::Binary, std::move(name));
  made->children.push_back(std::move(left));
  made->children.push_back(std::move(right));
  return made;
}

ExpressionPtr ExpressionParser::parseTuple(bool withCondition) {
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

ExpressionPtr ExpressionParser::parseExpression() {
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

ExpressionPtr ExpressionParser::parseOr() {
  ExpressionPtr left = parseAnd();
  while (takeName("or"))
    left = binary("or", std::move(left), parseAnd());
  return left;
}

ExpressionPtr ExpressionParser::parseAnd() {
  ExpressionPtr left = parseNot();
  while (takeName("and"))
    left = binary("and", std::move(left), parseNot());
  return left;
}

ExpressionPtr ExpressionParser::parseNot() {
  const Depth depth(*this);
  if (!isName("not"))
    return parseCompare();
  ExpressionPtr made = make(Kind::Unary, "not");
  ++at_;
  made->children.push_back(parseNot());
  return made;
}

std::string ExpressionParser::takeComparison() {
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

ExpressionPtr ExpressionParser::parseCompare() {
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
ExpressionPtr ExpressionParser::parseLeft(const std::array<const char *, N> &operators, Next next) {
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

ExpressionPtr ExpressionParser::parseSum() {
  return parseLeft(std::array{"+", "-"}, [&] { return parseJoin(); });
}

ExpressionPtr ExpressionParser::parseJoin() {
  return parseLeft(std::array{"~"}, [&] { return parseProduct(); });
}

ExpressionPtr ExpressionParser::parseProduct() {
  return parseLeft(std::array{"*", "//", "/", "%"}, [&] { return parsePower(); });
}

ExpressionPtr ExpressionParser::parsePower() {
  return parseLeft(std::array{"**"}, [&] { return parseUnary(true); });
}

ExpressionPtr ExpressionParser::parseUnary(bool withFilters) {
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

ExpressionPtr ExpressionParser::parsePrimary() {
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

ExpressionPtr ExpressionParser::parseBrackets() {
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

ExpressionPtr ExpressionParser::parseList() {
  ExpressionPtr list = make(Kind::List);
  while (!isOperator("]")) {
    list->children.push_back(parseExpression());
    if (!takeOperator(","))
      break;
  }
  expectOperator("]");
  return list;
}

ExpressionPtr ExpressionParser::parseDict() {
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

ExpressionPtr ExpressionParser::parsePostfix(ExpressionPtr value) {
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

ExpressionPtr ExpressionParser::parseSubscript(ExpressionPtr value) {
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

void ExpressionParser::parseArguments(Expression &made) {
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

ExpressionPtr ExpressionParser::parseCall(ExpressionPtr value) {
  ExpressionPtr made = make(Kind::Call);
  made->children.push_back(std::move(value));
  parseArguments(*made);
  return made;
}

std::string ExpressionParser::parseDottedName() {
  std::string name = expectName();
  while (takeOperator("."))
    name += "." + expectName();
  return name;
}

ExpressionPtr ExpressionParser::parseFilter(ExpressionPtr value) {
  ExpressionPtr made = make(Kind::Filter);
  made->name = parseDottedName();
  made->children.push_back(std::move(value));
  if (isOperator("("))
    parseArguments(*made);
  return made;
}

ExpressionPtr ExpressionParser::parseTest(ExpressionPtr value) {
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

ExpressionPtr ExpressionParser::parseFilters(ExpressionPtr value) {
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

} // namespace gpt2c::rt::jinja
