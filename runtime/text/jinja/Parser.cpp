#include "runtime/text/jinja/Parser.h"

#include "runtime/text/jinja/ExpressionParser.h"

#include <initializer_list>

namespace gpt2c::rt::jinja {
namespace {

using StatementPtr = std::unique_ptr<Statement>;

class Parser : ExpressionParser {
public:
  explicit Parser(std::string_view source) : ExpressionParser(source) {}

  Block run() {
    Block block = parseBlock({});
    if (peek().kind != Token::Kind::End)
      fail("{% " + peek(1).text + " %} closes nothing");
    return block;
  }

private:
  using ExpressionParser::make;

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

  int loops_ = 0;
};

} // namespace

Block parse(std::string_view source) { return Parser(source).run(); }

} // namespace gpt2c::rt::jinja
