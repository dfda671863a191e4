// The command line of a tool that only runs plans, as a table: it parses, it is what --help prints,
// and it says what is wrong. Flags are spelled as those of the compiler's tools are, which LLVM
// reads: --flag=VALUE, --flag VALUE, -n 3, -n=3.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpt2c {

/// Reads a value; what is wrong with it, or nothing.
using FlagError = std::optional<std::string>;
FlagError readValue(std::string_view text, std::string &to);
FlagError readValue(std::string_view text, int32_t &to);
FlagError readValue(std::string_view text, int64_t &to);
FlagError readValue(std::string_view text, uint64_t &to);
FlagError readValue(std::string_view text, double &to);
FlagError readValue(std::string_view text, bool &to); ///< true, false, 1, 0

template <typename E> struct FlagChoice {
  const char *name;
  E value;
  const char *help;
};

class Flags {
public:
  /// `overview`: what the tool does, a sentence.
  explicit Flags(std::string overview) : overview_(std::move(overview)) {}

  /// The one argument that is no flag, which has to be there. All references outlive the table.
  Flags &argument(const char *name, std::string &to);
  /// The same for one or more.
  Flags &arguments(const char *name, std::vector<std::string> &to);
  /// Arguments are not there where this flag is given.
  Flags &unless(const char *flag);
  /// --name=<value>, once; `value`: what --help calls it.
  template <typename T> Flags &value(const char *name, const char *value, const char *help, T &to) {
    return add({name, value, help, false, [&to](auto text) { return readValue(text, to); }});
  }
  /// The same, any number of times.
  template <typename T>
  Flags &list(const char *name, const char *value, const char *help, std::vector<T> &to) {
    return add(
        {name, value, help, true, [&to](auto text) { return readValue(text, to.emplace_back()); }});
  }
  /// The same, several values at once between commas.
  template <typename T>
  Flags &commas(const char *name, const char *value, const char *help, std::vector<T> &to) {
    return add({name, value, help, true, [&to](std::string_view text) {
                  FlagError error;
                  for (size_t end = 0; end != text.npos && !error; text.remove_prefix(end + 1)) {
                    end = text.find(',');
                    error = readValue(text.substr(0, end), to.emplace_back());
                    if (end == text.npos)
                      break;
                  }
                  return error;
                }});
  }
  /// --name.
  Flags &flag(const char *name, const char *help, bool &to);
  /// --name=<value> of a few.
  template <typename E>
  Flags &choice(const char *name, const char *help, E &to,
                const std::vector<FlagChoice<E>> &choices) {
    Flag f{name, "value", help, false, [&to, choices](std::string_view text) -> FlagError {
             for (const FlagChoice<E> &c : choices)
               if (text == c.name) {
                 to = c.value;
                 return std::nullopt;
               }
             return "Cannot find option named '" + std::string(text) + "'!";
           }};
    for (const FlagChoice<E> &c : choices)
      f.choices.emplace_back(c.name, c.help);
    return add(std::move(f));
  }

  /// A flag that is not given has the value of an environment variable, where that is set and not
  /// empty: `prefix` and the flag in capitals with _ for -, as PREFIX_MAX_ROWS.
  Flags &environment(const char *prefix);

  /// A flag that has to be given.
  Flags &require(const char *name);

  /// Reads the command line. --help and --version go to stdout and end the process with 0, what is
  /// wrong goes to stderr and ends it with 1.
  void parse(int argc, char **argv);
  /// What parse() says: of --help and --version to `out`, of errors to `errors`; then the exit code
  /// to end with, or none where the tool goes on.
  std::optional<int> read(const std::vector<std::string> &arguments, std::string &out,
                          std::string &errors);

  /// How often a flag of the table was given.
  int given(std::string_view name) const;
  /// The first of these flags that was given, with its dashes; "" where none was.
  std::string firstGiven(std::initializer_list<const char *> names) const;

private:
  struct Flag {
    const char *name, *value, *help;
    bool repeats;
    std::function<FlagError(std::string_view)> read;
    std::vector<std::pair<const char *, const char *>> choices = {}; ///< name and help
    bool needsValue = true, required = false;
    int given = 0;

    std::string spelling() const; ///< "-n" or "--name"
    std::string title() const;    ///< "--name=<value>"
  };

  Flags &add(Flag flag);
  const Flag *find(std::string_view name) const;
  std::string help() const;
  /// The flag in two columns, its choices below it.
  std::string describe(const Flag &flag, size_t column) const;
  /// Takes the argument at `index`, and the one behind it where that is its value.
  FlagError takeEnvironment();
  FlagError take(const std::vector<std::string> &arguments, size_t &index);
  std::string unknown(std::string_view argument, std::string_view name) const;

  std::string overview_, tool_ = "gpt2c";
  const char *argumentName_ = nullptr, *unless_ = nullptr;
  std::string environment_; ///< empty: none is read
  std::string *argument_ = nullptr;
  std::vector<std::string> *arguments_ = nullptr;
  std::vector<Flag> flags_;
};

} // namespace gpt2c
