// One grammar: the part of PTX that NVRTC writes for the kernels.
#include "Ptx.h"

#include <algorithm>
#include <cctype>
#include <cstring>

namespace gpt2c::emulated {

namespace {

bool isName(char c) { return std::isalnum((unsigned char)c) || strchr("_$%.:", c); }

struct Token {
  std::string text;
  int line;
};

std::vector<Token> tokensOf(const std::string &text) {
  std::vector<Token> tokens;
  int line = 1;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '\n')
      ++line;
    if (std::isspace((unsigned char)c) || c == '\0') {
      ++i;
    } else if (text.compare(i, 2, "//") == 0) {
      i = text.find('\n', i);
      if (i == std::string::npos)
        break;
    } else if (c == '"') {
      const size_t end = text.find('"', i + 1);
      tokens.push_back({text.substr(i, end + 1 - i), line});
      i = end + 1;
    } else if (isName(c) && c != ':') {
      size_t end = i;
      while (end < text.size() && isName(text[end]))
        ++end;
      // A label's colon is none of its name; two of them are.
      if (text[end - 1] == ':')
        --end;
      tokens.push_back({text.substr(i, end - i), line});
      i = end;
    } else {
      tokens.push_back({std::string(1, c), line});
      ++i;
    }
  }
  return tokens;
}

size_t sizeOf(const std::string &type) { // ".b32"
  const size_t digits = type.find_first_of("0123456789");
  if (digits == std::string::npos)
    throw Error("no size in type " + type);
  return type == ".f16x2" ? 4 : std::stoul(type.substr(digits)) / 8;
}

class Parser {
public:
  Parser(Module &module, const std::string &text) : module_(module), tokens_(tokensOf(text)) {}

  void parse() {
    scopes_.emplace_back();
    while (!atEnd()) {
      const std::string &t = peek();
      if (t == ".visible" || t == ".weak") {
        next();
      } else if (t == ".version" || t == ".target" || t == ".address_size") {
        const int line = here().line;
        while (!atEnd() && here().line == line)
          next();
      } else if (t == ".entry" || t == ".func") {
        parseFunction(next() == ".entry");
      } else {
        parseVariable();
      }
    }
    for (const Call &call : calls_) {
      auto callee = module_.functions.find(call.to);
      if (callee == module_.functions.end())
        throw Error("call of unknown " + call.to);
      module_.functions.at(call.from).code[call.at].callee = &callee->second;
    }
  }

private:
  struct Name {
    enum { Register, Address } kind;
    int slot;
    Variable variable;
  };
  struct Scope {
    std::map<std::string, Name> names;
    std::map<std::string, int> labels;
    std::vector<std::pair<int, std::string>> branches;
  };

  bool atEnd() const { return at_ >= tokens_.size(); }
  const Token &here() const {
    if (atEnd())
      throw Error("the module ends early");
    return tokens_[at_];
  }
  const std::string &peek() const { return here().text; }
  std::string next() {
    std::string text = peek();
    ++at_;
    return text;
  }
  bool take(const char *text) {
    if (atEnd() || peek() != text)
      return false;
    ++at_;
    return true;
  }
  void expect(const char *text) {
    if (!take(text))
      throw Error("line " + std::to_string(here().line) + ": '" + peek() + "' where '" + text +
                  "' belongs");
  }
  size_t number() { return std::stoull(next(), nullptr, 0); }

  /// ".shared .align 8 .b8 name[16]", with or without a value, and a semicolon.
  std::pair<std::string, Variable> parseVariable() {
    Variable v;
    bool isExternal = false;
    for (;; next())
      if (peek() == ".global" || peek() == ".const")
        v.space = Variable::Global;
      else if (peek() == ".shared")
        v.space = Variable::Shared;
      else if (peek() == ".param")
        v.space = Variable::Param;
      else if (peek() == ".local")
        v.space = Variable::Local;
      else if (peek() == ".extern")
        isExternal = true;
      else
        break;
    if (take(".align"))
      v.align = number();
    const size_t element = sizeOf(next());
    if (take(".ptr"))
      while (peek()[0] == '.' || std::isdigit((unsigned char)peek()[0]))
        next();
    v.align = std::max(v.align, element);
    const std::string name = next();
    v.bytes = element;
    if (take("[")) {
      v.bytes = peek() == "]" ? 0 : number() * element;
      expect("]");
    }
    std::vector<char> value(v.bytes);
    if (take("=")) {
      take("{");
      for (size_t i = 0; !take(";"); i += element) {
        const bool minus = take("-");
        const uint64_t bits = immediate(next(), minus);
        std::memcpy(value.data() + i, &bits, std::min(element, value.size() - i));
        if (!take(","))
          take("}");
      }
    } else {
      take(";");
    }
    place(v, isExternal, std::move(value));
    if (v.space == Variable::Global)
      module_.names[name] = module_.globals.size() - 1;
    scopes_.back().names[name] = {Name::Address, 0, v};
    return {name, v};
  }
  void place(Variable &v, bool isExternal, std::vector<char> value) {
    auto within = [&](size_t &size) {
      size = (size + v.align - 1) / v.align * v.align;
      v.at = size;
      size += v.bytes;
    };
    if (v.space == Variable::Global) {
      module_.globals.push_back(std::move(value));
      v.at = uint64_t(module_.globals.back().data());
    } else if (v.space == Variable::Shared) {
      if (isExternal)
        return; // behind all others, see the end of parseFunction
      size_t &size = function_ ? function_->sharedBytes : moduleShared_;
      within(size);
    } else if (!function_ || v.space == Variable::Local || inBody_) {
      v.space = Variable::Local; // parameters of calls, too
      within(function_->localBytes);
    } else {
      within(function_->paramBytes);
      function_->params.push_back(v);
    }
  }

  void parseFunction(bool isEntry) {
    Function function;
    function.sharedBytes = moduleShared_;
    function_ = &function;
    inBody_ = false;
    constants_.clear();
    scopes_.emplace_back();
    if (!isEntry && take("(")) {
      inBody_ = true; // what is returned is in the function's own memory
      const Variable v = parseVariable().second;
      inBody_ = false;
      function.result = int64_t(v.at);
      function.resultBytes = v.bytes;
      expect(")");
    }
    function.name = next();
    expect("(");
    while (!take(")")) {
      parseVariable();
      take(",");
    }
    if (take(";")) { // a declaration
      scopes_.pop_back();
      function_ = nullptr;
      return;
    }
    while (peek() != "{")
      parseDirective();
    inBody_ = true;
    parseBlock();
    resolve();
    scopes_.pop_back();
    for (Instruction &i : function.code) {
      for (int &o : i.o)
        o = slotOf(o);
      if (i.mask < -1)
        i.mask = slotOf(i.mask);
    }
    function.sharedBytes = (function.sharedBytes + 15) / 16 * 16;
    for (size_t dynamic : dynamics_)
      function.constants[dynamic] = sharedOrigin + function.sharedBytes;
    dynamics_.clear();
    const std::string name = function.name;
    module_.functions.emplace(name, std::move(function));
    function_ = nullptr;
  }
  /// Constants are numbered from -2 down until the number of registers is known.
  int slotOf(int o) const { return o <= -2 ? function_->registers + (-2 - o) : o; }

  void parseDirective() {
    const std::string name = next();
    if (name == ".maxntid" || name == ".reqntid" || name == ".reqnctapercluster") {
      unsigned values[3] = {1, 1, 1};
      for (int i = 0; i == 0 || take(","); ++i)
        values[i] = unsigned(number());
      if (name == ".reqnctapercluster")
        std::copy(values, values + 3, function_->cluster);
      else
        function_->maxThreads = values[0] * values[1] * values[2];
    } else if (name == ".minnctapersm") {
      number();
    } else if (name != ".explicitcluster" && name != ".noreturn") {
      throw Error("unknown directive " + name);
    }
  }

  void parseBlock() {
    expect("{");
    scopes_.emplace_back();
    while (!take("}"))
      parseStatement();
    resolve();
    Scope closed = std::move(scopes_.back());
    scopes_.pop_back();
    for (auto &branch : closed.branches)
      scopes_.back().branches.push_back(branch);
  }
  /// Labels of the innermost scope.
  void resolve() {
    Scope &scope = scopes_.back();
    std::erase_if(scope.branches, [&](auto &branch) {
      auto label = scope.labels.find(branch.second);
      if (label == scope.labels.end())
        return false;
      function_->code[size_t(branch.first)].jump = label->second - branch.first;
      return true;
    });
  }

  void parseStatement() {
    const std::string &t = peek();
    if (t == "{") {
      parseBlock();
    } else if (t == ";") {
      next();
    } else if (t == ".reg") {
      parseRegisters();
    } else if (t == ".pragma") {
      while (!take(";"))
        next();
    } else if (t[0] == '.') {
      parseVariable();
    } else if (tokens_[at_ + 1].text == ":") {
      scopes_.back().labels[next()] = int(function_->code.size());
      next();
    } else {
      parseInstruction();
    }
  }
  void parseRegisters() {
    next();
    next(); // the type; all registers have 64 bits
    do {
      const std::string name = next();
      if (take("<")) {
        const size_t count = number();
        expect(">");
        for (size_t i = 0; i < count; ++i)
          scopes_.back().names[name + std::to_string(i)] = {
              Name::Register, function_->registers++, {}};
      } else {
        scopes_.back().names[name] = {Name::Register, function_->registers++, {}};
      }
    } while (take(","));
    expect(";");
  }

  const Name *find(const std::string &name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
      if (auto it = scope->names.find(name); it != scope->names.end())
        return &it->second;
    return nullptr;
  }

  void parseInstruction() {
    Instruction i;
    i.line = here().line;
    const size_t begin = at_;
    if (take("@")) {
      i.unless = take("!");
      i.guard = registerOf(next());
    }
    const std::string name = next();
    if (name.starts_with("call")) {
      parseCall(i);
    } else {
      i.mode = peek() == "{"; // a vector is written
      while (!take(";")) {
        parseOperand(i, name);
        if (!take(",") && !take("|") && peek() != ";")
          throw Error("line " + std::to_string(i.line) + ": '" + peek() + "' behind an operand");
      }
      decode(i, name);
    }
    for (size_t k = begin; k < at_; ++k)
      i.text += tokens_[k].text + " ";
    function_->code.push_back(std::move(i));
  }
  int registerOf(const std::string &name) const {
    const Name *found = find(name);
    if (!found || found->kind != Name::Register)
      throw Error("no register " + name);
    return found->slot;
  }
  void parseOperand(Instruction &i, const std::string &name) {
    if (take("{")) {
      while (!take("}")) {
        parseOperand(i, name);
        take(",");
      }
    } else if (take("[")) {
      // An address, and for tensors coordinates behind it.
      i.o.push_back(value(i.offset));
      if (take("+")) {
        const bool minus = take("-");
        i.offset += int64_t(immediate(next(), minus));
      }
      if (take(","))
        parseOperand(i, name);
      expect("]");
    } else if (name.starts_with("bra")) {
      scopes_.back().branches.emplace_back(int(function_->code.size()), next());
    } else if (take("!")) {
      throw Error("line " + std::to_string(i.line) + ": a negated operand");
    } else {
      int64_t offset = 0;
      const int slot = value(offset);
      i.o.push_back(slot);
      i.offset += offset;
    }
  }
  /// A register, a constant, or the base of a variable, whose place in it is added to `offset`.
  int value(int64_t &offset) {
    const bool minus = take("-");
    const std::string text = next();
    if (text == "_")
      return -1;
    if (const Name *name = find(text)) {
      if (name->kind == Name::Register)
        return name->slot;
      const Variable &v = name->variable;
      if (v.space == Variable::Param || v.space == Variable::Local) {
        offset += int64_t(v.at);
        return v.space == Variable::Param ? Function::paramBase : Function::localBase;
      }
      if (v.space == Variable::Shared && v.bytes == 0) {
        dynamics_.push_back(function_->constants.size());
        return newConstant(0);
      }
      return constant(v.space == Variable::Shared ? sharedOrigin + v.at : v.at);
    }
    if (text[0] == '%')
      return special(text);
    return constant(immediate(text, minus));
  }
  /// What a thread is told of itself is among its constants.
  int special(const std::string &name) {
    static const std::map<std::string, Special> known = {
        {"%tid.x", Special::Thread},         {"%ntid.x", Special::Threads},
        {"%ctaid.x", Special::BlockX},       {"%ctaid.y", Special::BlockY},
        {"%ctaid.z", Special::BlockZ},       {"%nctaid.x", Special::BlocksX},
        {"%nctaid.y", Special::BlocksY},     {"%nctaid.z", Special::BlocksZ},
        {"%cluster_ctarank", Special::Rank}, {"%smid", Special::Processor}};
    if (name == "%globaltimer" || name == "%clock64" || name == "%clock") {
      if (function_->time < 0) {
        function_->time = int(function_->constants.size());
        return newConstant(0);
      }
      return -2 - function_->time;
    }
    auto it = known.find(name);
    if (it == known.end())
      throw Error("unknown register " + name);
    function_->specials.emplace_back(int(function_->constants.size()), it->second);
    return newConstant(0);
  }
  int newConstant(uint64_t bits) {
    function_->constants.push_back(bits);
    return -2 - int(function_->constants.size() - 1);
  }
  int constant(uint64_t bits) {
    auto [it, added] = constants_.try_emplace(bits, 0);
    if (added)
      it->second = newConstant(bits);
    return it->second;
  }
  static uint64_t immediate(const std::string &text, bool minus) {
    uint64_t bits = 0;
    if (text.starts_with("0f") || text.starts_with("0F") || text.starts_with("0d") ||
        text.starts_with("0D"))
      bits = std::stoull(text.substr(2), nullptr, 16);
    else if (std::isdigit((unsigned char)text[0]))
      bits = std::stoull(text.substr(0, text.find('U')), nullptr, 0);
    else
      throw Error("unknown name " + text);
    return minus ? 0 - bits : bits;
  }

  /// call.uni (result), function, (parameters); all are variables of the caller.
  void parseCall(Instruction &i) {
    int64_t at = 0;
    if (take("(")) {
      value(at);
      i.offset = at;
      expect(")");
      expect(",");
    }
    const std::string name = next();
    calls_.push_back({function_->name, function_->code.size(), name});
    if (take(",")) {
      expect("(");
      while (!take(")")) {
        at = 0;
        value(at);
        i.o.push_back(int(at)); // no register
        take(",");
      }
    }
    expect(";");
    decode(i, "call");
  }

  struct Call {
    std::string from;
    size_t at;
    std::string to;
  };
  Module &module_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  std::vector<Scope> scopes_;
  Function *function_ = nullptr;
  bool inBody_ = false;
  size_t moduleShared_ = 0;
  std::map<uint64_t, int> constants_;
  std::vector<size_t> dynamics_; // constants that are the address of dynamic shared memory
  std::vector<Call> calls_;
};

} // namespace

Module::Module(const std::string &text) { Parser(*this, text).parse(); }

} // namespace gpt2c::emulated
