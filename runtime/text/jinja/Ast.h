// A template as a tree.
#pragma once

#include "runtime/text/jinja/Value.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace gpt2c::rt::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  enum class Kind {
    Literal,     ///< value
    Name,        ///< name
    List,        ///< children
    Tuple,       ///< children
    Dict,        ///< children: key, value, key, value
    Attribute,   ///< children[0].name
    Item,        ///< children[0][children[1]]
    Slice,       ///< children[0][children[1]:children[2]:children[3]], null where left out
    Call,        ///< children[0](children[1..], named)
    Filter,      ///< children[0] | name(children[1..], named)
    Test,        ///< children[0] is name(children[1..], named)
    Unary,       ///< name: "-", "+", "not"
    Binary,      ///< name: "+", "~", "and", "==", "in", ..
    Compare,     ///< children[0] ops[0] children[1] ops[1] children[2] ..
    Conditional, ///< children[0] if children[1] else children[2], which may be null
  };
  Kind kind;
  int line = 0;
  std::string name;
  Value value;
  std::vector<ExpressionPtr> children;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  std::vector<std::string> operators;
};

struct Statement;
using Block = std::vector<std::unique_ptr<Statement>>;

struct Statement {
  enum class Kind {
    Text,        ///< text
    Print,       ///< expression
    If,          ///< branches; other
    For,         ///< targets in expression, condition where there is one: body, other
    Set,         ///< targets, or the attribute `text` of the namespace targets[0], to expression
    SetBlock,    ///< targets[0] to body, through expression: filters of the name ""
    Macro,       ///< text: its name; targets: parameters; defaults: of the last ones; body
    CallBlock,   ///< expression: a call whose caller() is body; targets: its parameters
    FilterBlock, ///< body through expression: filters of the name ""
    Body,        ///< body
    Break,
    Continue,
  };
  Kind kind;
  int line = 0;
  std::string text;
  std::vector<std::string> targets;
  ExpressionPtr expression, condition;
  std::vector<ExpressionPtr> defaults;
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  Block body, other;
};

} // namespace gpt2c::rt::jinja
