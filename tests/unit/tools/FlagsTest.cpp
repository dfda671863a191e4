// The command line of the tools that only run plans.
#include "tools/runtime-common/Flags.h"

#include "gtest/gtest.h"

#include <random>

namespace gpt2c {
namespace {

enum class Color { Red, Green };

/// One flag of each kind.
struct Given {
  std::string path, text;
  std::vector<std::string> words;
  std::vector<int> numbers;
  int n = 7;
  int64_t big = 0;
  uint64_t seed = 0;
  double t = 0;
  bool on = false;
  Color color = Color::Red;
  Flags flags{"Does a thing."};
  std::string out, errors;

  Given() {
    flags.argument("PATH", path)
        .value("text", "TEXT", "A text", text)
        .list("word", "W", "A word", words)
        .commas("b", "LIST", "Numbers", numbers)
        .value("n", "N", "A number", n)
        .value("big", "N", "A large number", big)
        .value("seed", "S", "A seed", seed)
        .value("t", "T", "A temperature", t)
        .flag("on", "A switch", on)
        .choice<Color>("color", "A color", color,
                       {{"red", Color::Red, "the default"}, {"green", Color::Green, ""}});
  }
  std::optional<int> read(std::vector<std::string> arguments) {
    return flags.read(arguments, out, errors);
  }
};

TEST(Flags, ReadsEverySpelling) {
  for (const std::vector<std::string> &spelled : std::vector<std::vector<std::string>>{
           {"p", "--text=x=y", "-n=3", "--on", "-b", "1,2", "-b=3", "--word=", "--word", "-"},
           {"--text", "x=y", "-n", "3", "-on", "-b=1,2,3", "-word=", "--word=-", "--", "p"},
           {"-text=x=y", "--n=3", "--on=true", "--b=1", "--b=2,3", "p", "--word", "", "-word",
            "-"}}) {
    Given g;
    ASSERT_EQ(g.read(spelled), std::nullopt) << g.errors;
    EXPECT_EQ(g.path, "p");
    EXPECT_EQ(g.text, "x=y");
    EXPECT_EQ(g.n, 3);
    EXPECT_TRUE(g.on);
    EXPECT_EQ(g.numbers, (std::vector<int>{1, 2, 3}));
    EXPECT_EQ(g.words, (std::vector<std::string>{"", "-"}));
    EXPECT_EQ(g.flags.given("word"), 2);
    EXPECT_EQ(g.flags.given("big"), 0);
    EXPECT_EQ(g.flags.firstGiven({"big", "n", "text"}), "-n");
    EXPECT_EQ(g.flags.firstGiven({"big", "t"}), "");
  }
}

TEST(Flags, ReadsTheEndsOfNumbers) {
  Given g;
  ASSERT_EQ(g.read({"p", "-n=-2147483648", "--big=9223372036854775807",
                    "--seed=18446744073709551615", "-t", "inf", "--color=green"}),
            std::nullopt)
      << g.errors;
  EXPECT_EQ(g.n, INT32_MIN);
  EXPECT_EQ(g.big, INT64_MAX);
  EXPECT_EQ(g.seed, UINT64_MAX);
  EXPECT_GT(g.t, 1e308);
  EXPECT_EQ(g.color, Color::Green);
}

TEST(Flags, SaysWhatIsWrong) {
  const std::pair<std::vector<std::string>, const char *> cases[] = {
      {{"p", "--txt=x"},
       "gpt2c: Unknown command line argument '--txt=x'.  Try: 'gpt2c --help'\n"
       "gpt2c: Did you mean '--text=x'?\n"},
      {{"p", "-n=x"}, "gpt2c: for the -n option: 'x' value invalid for integer argument!\n"},
      {{"p", "-n=3x"}, "'3x' value invalid"},
      {{"p", "-n=2147483648"}, "value invalid for integer argument!"},
      {{"p", "--seed=-1"}, "'-1' value invalid for ulong argument!"},
      {{"p", "-t="}, "'' value invalid for floating point argument!"},
      {{"p", "-b=1,,2"}, "for the -b option: '' value invalid"},
      {{"p", "-n=1", "-n=2"}, "for the -n option: may only occur zero or one times!"},
      {{"p", "--text"}, "for the --text option: requires a value!"},
      {{"p", "--on=maybe"}, "'maybe' is invalid value for boolean argument! Try 0 or 1"},
      {{"p", "--color=blue"},
       "for the --color option: Cannot find option named 'blue'!\n  --color=<value> - A color\n"
       "    =red          -   the default\n    =green\n"},
      {{}, "gpt2c: Not enough positional command line arguments specified!\n"},
      {{"p", "q"}, "gpt2c: Too many positional arguments specified!\n"},
      {{"p", "--text=a", "--zzzzzzzzz"}, "Unknown command line argument '--zzzzzzzzz'."}};
  for (const auto &[arguments, text] : cases) {
    Given g;
    EXPECT_EQ(g.read(arguments), 1);
    EXPECT_NE(g.errors.find(text), std::string::npos) << g.errors << "\nexpected: " << text;
    EXPECT_EQ(g.out, "");
  }
  Given far;
  far.read({"p", "--zzzzzzzzz"});
  EXPECT_EQ(far.errors.find("Did you mean"), std::string::npos);
}

TEST(Flags, AFlagTakesThePlaceOfTheArgument) {
  for (const auto &[arguments, error] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--text=x"}, ""},
           {{"p"}, ""},
           {{}, "gpt2c: Not enough positional command line arguments specified!\n"},
           {{"p", "--text=x"}, "gpt2c: 'p' does not go with --text\n"}}) {
    Given g;
    g.flags.unless("text");
    EXPECT_EQ(g.read(arguments), error.empty() ? std::nullopt : std::optional(1));
    EXPECT_EQ(g.errors.substr(0, error.size()), error);
    EXPECT_EQ(g.errors.empty(), error.empty());
  }
}

// scripts/make-man.py reads it.
TEST(Flags, HelpIsATable) {
  Given g;
  EXPECT_EQ(g.read({"--help", "--nonsense"}), 0);
  EXPECT_EQ(g.out.find("OVERVIEW: Does a thing.\n\nUSAGE: gpt2c [options] PATH\n\nOPTIONS:\n"), 0u);
  for (const char *line :
       {"\n  --version       - Display the version", "\n  -b <LIST>       - Numbers\n",
        "\n  --color=<value> - A color\n    =red          -   the default\n",
        "\n  --on            - A switch\n"})
    EXPECT_NE(g.out.find(line), std::string::npos) << g.out;
  EXPECT_LT(g.out.find("--big"), g.out.find("--color"));
  EXPECT_EQ(Given().read({"--version"}), 0);
}

TEST(Flags, AnyArgumentsAreReadOrRefused) {
  std::mt19937_64 random(9);
  const char *parts[] = {"-", "--", "n", "text", "=", "b", ",", "1", "color", "red", "on", "x", ""};
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::string> arguments(random() % 5);
    for (std::string &a : arguments)
      for (size_t n = random() % 5; n > 0; --n)
        a += parts[random() % std::size(parts)];
    Given g;
    const std::optional<int> code = g.read(arguments);
    EXPECT_EQ(code == 1, !g.errors.empty());
  }
}

} // namespace
} // namespace gpt2c
