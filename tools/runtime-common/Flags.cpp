#include "tools/runtime-common/Flags.h"

#include <algorithm>
#include <cassert>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <utility>

namespace gpt2c {

//===-- values ------------------------------------------------------------------------------===//

static std::string invalid(std::string_view text, const char *kind) {
  return "'" + std::string(text) + "' value invalid for " + kind + " argument!";
}

template <typename T> static FlagError readNumber(std::string_view text, T &to, const char *kind) {
  const char *begin = text.data(), *end = begin + text.size();
  const std::from_chars_result read = std::from_chars(begin, end, to);
  if (read.ec != std::errc() || read.ptr != end)
    return invalid(text, kind);
  return std::nullopt;
}

FlagError readValue(std::string_view text, std::string &to) {
  to = text;
  return std::nullopt;
}
FlagError readValue(std::string_view text, int32_t &to) { return readNumber(text, to, "integer"); }
FlagError readValue(std::string_view text, int64_t &to) { return readNumber(text, to, "long"); }
FlagError readValue(std::string_view text, uint64_t &to) { return readNumber(text, to, "ulong"); }
FlagError readValue(std::string_view text, double &to) {
  return readNumber(text, to, "floating point");
}
FlagError readValue(std::string_view text, bool &to) {
  to = text == "true" || text == "1" || text.empty();
  if (to || text == "false" || text == "0")
    return std::nullopt;
  return "'" + std::string(text) + "' is invalid value for boolean argument! Try 0 or 1";
}

//===-- the table ---------------------------------------------------------------------------===//

std::string Flags::Flag::spelling() const {
  return (std::string_view(name).size() == 1 ? "-" : "--") + std::string(name);
}

std::string Flags::Flag::title() const {
  if (!needsValue)
    return spelling();
  const std::string placeholder = "<" + std::string(value) + ">";
  return spelling() + (std::string_view(name).size() == 1 ? " " : "=") + placeholder;
}

Flags &Flags::add(Flag flag) {
  assert(!find(flag.name) && "a flag is there once");
  flags_.push_back(std::move(flag));
  return *this;
}

Flags &Flags::argument(const char *name, std::string &to) {
  argumentName_ = name;
  argument_ = &to;
  return *this;
}

Flags &Flags::unless(const char *flag) {
  unless_ = flag;
  return *this;
}

Flags &Flags::arguments(const char *name, std::vector<std::string> &to) {
  argumentName_ = name;
  arguments_ = &to;
  return *this;
}

Flags &Flags::environment(const char *prefix) {
  environment_ = prefix;
  return *this;
}

Flags &Flags::require(const char *name) {
  const_cast<Flag *>(find(name))->required = true;
  return *this;
}

Flags &Flags::flag(const char *name, const char *help, bool &to) {
  Flag f{name, "", help, false, [&to](auto text) { return readValue(text, to); }};
  f.needsValue = false;
  return add(std::move(f));
}

const Flags::Flag *Flags::find(std::string_view name) const {
  auto it = std::ranges::find(flags_, name, [](const Flag &f) { return std::string_view(f.name); });
  return it == flags_.end() ? nullptr : &*it;
}

int Flags::given(std::string_view name) const {
  const Flag *flag = find(name);
  assert(flag && "the table has the flag");
  return flag->given;
}

std::string Flags::firstGiven(std::initializer_list<const char *> names) const {
  for (const char *name : names)
    if (given(name))
      return find(name)->spelling();
  return {};
}

//===-- --help ------------------------------------------------------------------------------===//

static std::string padded(std::string text, size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

std::string Flags::describe(const Flag &flag, size_t column) const {
  std::string text = "  " + padded(flag.title(), column) + " - " + flag.help + "\n";
  for (auto [name, help] : flag.choices)
    text += *help ? "  " + padded("  =" + std::string(name), column) + " -   " + help + "\n"
                  : "    =" + std::string(name) + "\n";
  return text;
}

std::string Flags::help() const {
  std::vector<Flag> generic(2);
  generic[0] = {"help", "", "Display available options", false, nullptr};
  generic[1] = {"version", "", "Display the version of this program", false, nullptr};
  std::vector<Flag> own = flags_;
  std::ranges::sort(own, {}, [](const Flag &f) { return std::string_view(f.name); });
  size_t column = 0;
  for (const Flag &f : own)
    column = std::max(column, f.title().size());
  std::string text = "OVERVIEW: " + overview_ + "\n\nUSAGE: " + tool_ + " [options]" +
                     (argumentName_ ? std::string(" ") + argumentName_ : "") +
                     "\n\nOPTIONS:\n\nGeneric Options:\n\n";
  for (Flag &f : generic) {
    f.needsValue = false;
    text += describe(f, column);
  }
  text += "\nOptions:\n\n";
  for (const Flag &f : own)
    text += describe(f, column);
  return text;
}

//===-- the command line --------------------------------------------------------------------===//

/// Insertions, deletions and replacements that make one text of the other.
static size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t(0));
  for (size_t i = 0; i < a.size(); ++i) {
    size_t corner = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j)
      corner = std::exchange(row[j + 1],
                             std::min({corner + (a[i] != b[j]), row[j] + 1, row[j + 1] + 1}));
  }
  return row.back();
}

std::string Flags::unknown(std::string_view argument, std::string_view name) const {
  std::string text =
      "Unknown command line argument '" + std::string(argument) + "'.  Try: '" + tool_ + " --help'";
  auto nearest = std::ranges::min_element(
      flags_, {}, [&](const Flag &f) { return distance(name, std::string_view(f.name)); });
  if (nearest != flags_.end() && distance(name, nearest->name) <= 1 + name.size() / 3)
    text += "\n" + tool_ + ": Did you mean '" + nearest->spelling() +
            std::string(argument.substr(std::min(argument.find('='), argument.size()))) + "'?";
  return text;
}

FlagError Flags::take(const std::vector<std::string> &arguments, size_t &index) {
  const std::string_view argument = arguments[index];
  std::string_view name = argument.substr(argument.starts_with("--") ? 2 : 1), value;
  const size_t equals = name.find('=');
  const bool hasValue = equals != name.npos;
  if (hasValue) {
    value = name.substr(equals + 1);
    name = name.substr(0, equals);
  }
  auto *flag = const_cast<Flag *>(find(name));
  if (!flag)
    return unknown(argument, name);
  const std::string of = "for the " + flag->spelling() + " option: ";
  if (flag->given++ && !flag->repeats)
    return of + "may only occur zero or one times!";
  if (!hasValue && flag->needsValue) {
    if (index + 1 == arguments.size())
      return of + "requires a value!";
    value = arguments[++index];
  }
  FlagError error = flag->read(value);
  if (!error)
    return std::nullopt;
  std::string text = of + *error;
  if (!flag->choices.empty())
    text += "\n" + describe(*flag, flag->title().size());
  if (text.ends_with('\n'))
    text.pop_back();
  return text;
}

FlagError Flags::takeEnvironment() {
  for (Flag &f : flags_) {
    std::string name = environment_ + "_" + f.name;
    std::ranges::transform(name, name.begin(),
                           [](char c) { return c == '-' ? '_' : char(std::toupper(c)); });
    const char *value = std::getenv(name.c_str());
    if (f.given || !value || !*value)
      continue;
    f.given = 1;
    if (FlagError error = f.read(value))
      return "for the environment's " + name + ": " + *error;
  }
  return std::nullopt;
}

std::optional<int> Flags::read(const std::vector<std::string> &arguments, std::string &out,
                               std::string &errors) {
  std::vector<std::string> plain;
  bool onlyPlain = false;
  auto wrong = [&](const std::string &what) { errors += tool_ + ": " + what + "\n"; };
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string &a = arguments[i];
    if (onlyPlain || a == "-" || !a.starts_with("-"))
      plain.push_back(a);
    else if (a == "--")
      onlyPlain = true;
    else if (a == "--help" || a == "-help" || (a == "-h" && !find("h"))) {
      out = help();
      return 0;
    } else if (a == "--version" || a == "-version") {
      out = "gpt2c " GPT2C_VERSION "\n";
      return 0;
    } else if (FlagError error = take(arguments, i))
      wrong(*error);
  }
  if (!environment_.empty())
    if (FlagError error = takeEnvironment())
      wrong(*error);
  for (const Flag &f : flags_)
    if (f.required && !f.given)
      wrong("for the " + f.spelling() + " option: must be specified at least once!");
  const bool left = unless_ && given(unless_) > 0;
  const size_t wanted = (argument_ || arguments_) && !left ? 1 : 0;
  if (plain.size() < wanted)
    wrong("Not enough positional command line arguments specified!\nMust specify at least 1 "
          "positional argument: See: " +
          tool_ + " --help");
  if (left && !plain.empty())
    wrong("'" + plain[0] + "' does not go with " + find(unless_)->spelling());
  else if (plain.size() > wanted && !arguments_)
    wrong("Too many positional arguments specified!\nCan specify at most " +
          std::to_string(wanted) + " positional arguments: See: " + tool_ + " --help");
  if (!errors.empty())
    return 1;
  if (argument_ && wanted)
    *argument_ = plain[0];
  if (arguments_)
    *arguments_ = std::move(plain);
  return std::nullopt;
}

void Flags::parse(int argc, char **argv) {
  const std::string path = argv[0];
  tool_ = path.substr(path.rfind('/') + 1);
  std::string out, errors;
  const std::optional<int> code = read({argv + 1, argv + argc}, out, errors);
  std::fputs(out.c_str(), stdout);
  std::fputs(errors.c_str(), stderr);
  if (code)
    std::exit(std::fflush(stdout) == 0 ? *code : 2);
}

} // namespace gpt2c
