#include "runtime/text/unicode/CharacterClasses.h"

#include <algorithm>
#include <utility>

namespace gpt2c::rt::classes {
namespace {

struct Named {
  std::string_view name, body;
};

/// What Unicode 15, 15.1 and 16 added to version 14, by category.
constexpr Named kAdded[] = {
    {"Lu", R"(\x{1C89}\x{A7CB}-\x{A7CC}\x{A7DA}\x{A7DC}\x{10D50}-\x{10D65})"},
    {"Ll", R"(\x{1C8A}\x{A7CD}\x{A7DB}\x{10D70}-\x{10D85}\x{1DF25}-\x{1DF2A})"},
    {"Lm",
     R"(\x{10D4E}\x{10D6F}\x{16D40}-\x{16D42}\x{16D6B}-\x{16D6C}\x{1E030}-\x{1E06D}\x{1E4EB})"},
    {"Lo", R"(\x{105C0}-\x{105F3}\x{10D4A}-\x{10D4D}\x{10D4F}\x{10EC2}-\x{10EC4})"
           R"(\x{1123F}-\x{11240}\x{11380}-\x{11389}\x{1138B}\x{1138E}\x{11390}-\x{113B5}\x{113B7})"
           R"(\x{113D1}\x{113D3}\x{11BC0}-\x{11BE0}\x{11F02}\x{11F04}-\x{11F10}\x{11F12}-\x{11F33})"
           R"(\x{1342F}\x{13441}-\x{13446}\x{13460}-\x{143FA}\x{16100}-\x{1611D})"
           R"(\x{16D43}-\x{16D6A}\x{18CFF}\x{1B132}\x{1B155}\x{1E4D0}-\x{1E4EA}\x{1E5D0}-\x{1E5ED})"
           R"(\x{1E5F0}\x{2B739}\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})"},
    {"Mn", R"(\x{897}\x{ECE}\x{10D69}-\x{10D6D}\x{10EFC}-\x{10EFF}\x{11241}\x{113BB}-\x{113C0})"
           R"(\x{113CE}\x{113D0}\x{113D2}\x{113E1}-\x{113E2}\x{11F00}-\x{11F01}\x{11F36}-\x{11F3A})"
           R"(\x{11F40}\x{11F42}\x{11F5A}\x{13440}\x{13447}-\x{13455}\x{1611E}-\x{16129})"
           R"(\x{1612D}-\x{1612F}\x{1E08F}\x{1E4EC}-\x{1E4EF}\x{1E5EE}-\x{1E5EF})"},
    {"Mc", R"(\x{CF3}\x{113B8}-\x{113BA}\x{113C2}\x{113C5}\x{113C7}-\x{113CA}\x{113CC}-\x{113CD})"
           R"(\x{113CF}\x{1171E}\x{11F03}\x{11F34}-\x{11F35}\x{11F3E}-\x{11F3F}\x{11F41})"
           R"(\x{1612A}-\x{1612C})"},
    {"Nd", R"(\x{10D40}-\x{10D49}\x{116D0}-\x{116E3}\x{11BF0}-\x{11BF9}\x{11F50}-\x{11F59})"
           R"(\x{16130}-\x{16139}\x{16D70}-\x{16D79}\x{1CCF0}-\x{1CCF9}\x{1E4F0}-\x{1E4F9})"
           R"(\x{1E5F1}-\x{1E5FA})"},
    {"No", R"(\x{1D2C0}-\x{1D2D3})"},
    {"Pd", R"(\x{10D6E})"},
    {"Po", R"(\x{1B4E}-\x{1B4F}\x{1B7F}\x{113D4}-\x{113D5}\x{113D7}-\x{113D8}\x{11B00}-\x{11B09})"
           R"(\x{11BE1}\x{11F43}-\x{11F4F}\x{16D6D}-\x{16D6F}\x{1E5FF})"},
    {"Sm", R"(\x{10D8E}-\x{10D8F})"},
    {"So", R"(\x{2427}-\x{2429}\x{2FFC}-\x{2FFF}\x{31E4}-\x{31E5}\x{31EF}\x{1CC00}-\x{1CCEF})"
           R"(\x{1CD00}-\x{1CEB3}\x{1F6DC}\x{1F774}-\x{1F776}\x{1F77B}-\x{1F77F}\x{1F7D9})"
           R"(\x{1F8B2}-\x{1F8BB}\x{1F8C0}-\x{1F8C1}\x{1FA75}-\x{1FA77}\x{1FA87}-\x{1FA89})"
           R"(\x{1FA8F}\x{1FAAD}-\x{1FAAF}\x{1FABB}-\x{1FABF}\x{1FAC6}\x{1FACE}-\x{1FACF})"
           R"(\x{1FADA}-\x{1FADC}\x{1FADF}\x{1FAE8}-\x{1FAE9}\x{1FAF7}-\x{1FAF8})"
           R"(\x{1FBCB}-\x{1FBEF})"},
    {"Cf", R"(\x{13439}-\x{1343F})"},
};

/// Long names of categories, in lower case without spaces.
constexpr Named kCategories[] = {{"letter", "L"},
                                 {"uppercaseletter", "Lu"},
                                 {"lowercaseletter", "Ll"},
                                 {"titlecaseletter", "Lt"},
                                 {"modifierletter", "Lm"},
                                 {"otherletter", "Lo"},
                                 {"casedletter", "LC"},
                                 {"mark", "M"},
                                 {"combiningmark", "M"},
                                 {"nonspacingmark", "Mn"},
                                 {"spacingmark", "Mc"},
                                 {"enclosingmark", "Me"},
                                 {"number", "N"},
                                 {"decimalnumber", "Nd"},
                                 {"letternumber", "Nl"},
                                 {"othernumber", "No"},
                                 {"punctuation", "P"},
                                 {"connectorpunctuation", "Pc"},
                                 {"dashpunctuation", "Pd"},
                                 {"openpunctuation", "Ps"},
                                 {"closepunctuation", "Pe"},
                                 {"initialpunctuation", "Pi"},
                                 {"finalpunctuation", "Pf"},
                                 {"otherpunctuation", "Po"},
                                 {"symbol", "S"},
                                 {"mathsymbol", "Sm"},
                                 {"currencysymbol", "Sc"},
                                 {"modifiersymbol", "Sk"},
                                 {"othersymbol", "So"},
                                 {"separator", "Z"},
                                 {"spaceseparator", "Zs"},
                                 {"lineseparator", "Zl"},
                                 {"paragraphseparator", "Zp"},
                                 {"other", "C"},
                                 {"control", "Cc"},
                                 {"cntrl", "Cc"},
                                 {"format", "Cf"},
                                 {"unassigned", "Cn"},
                                 {"privateuse", "Co"},
                                 {"surrogate", "Cs"}};

constexpr std::string_view kShort[] = {"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "LC", "M",  "Mn", "Mc",
                                       "Me", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe",
                                       "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk", "So", "Z",  "Zs",
                                       "Zl", "Zp", "C",  "Cc", "Cf", "Cn", "Co", "Cs"};

/// Binary properties of PCRE2 by their names of one word.
constexpr std::string_view kBinary[] = {"cased",
                                        "dash",
                                        "diacritic",
                                        "emoji",
                                        "emojicomponent",
                                        "emojimodifier",
                                        "emojimodifierbase",
                                        "emojipresentation",
                                        "extendedpictographic",
                                        "extender",
                                        "ideographic",
                                        "idcontinue",
                                        "idstart",
                                        "math",
                                        "patternsyntax",
                                        "quotationmark",
                                        "radical",
                                        "unifiedideograph",
                                        "variationselector",
                                        "xidcontinue",
                                        "xidstart"};

/// "LC", "P", "Lu" and what was added to its parts.
std::string category(std::string_view name) {
  std::string body = "\\p{" + std::string(name == "LC" ? "L&" : name) + "}";
  for (const Named &added : kAdded)
    if (name == "LC" ? added.name == "Lu" || added.name == "Ll" : added.name.starts_with(name))
      body += added.body;
  return body;
}

std::string added(std::initializer_list<std::string_view> names) {
  std::string body;
  for (const Named &entry : kAdded)
    if (std::ranges::count(names, entry.name))
      body += entry.body;
  return body;
}

std::string alphabetic() { return "\\p{Alphabetic}" + added({"Lu", "Ll", "Lm", "Lo", "Mn", "Mc"}); }

std::optional<std::string> posix(const std::string &name) {
  if (name == "alpha" || name == "alphabetic")
    return alphabetic();
  if (name == "alnum")
    return alphabetic() + digit();
  if (name == "digit")
    return digit();
  if (name == "space" || name == "whitespace")
    return space();
  if (name == "word")
    return word();
  if (name == "upper" || name == "uppercase")
    return "\\p{Uppercase}" + added({"Lu"});
  if (name == "lower" || name == "lowercase")
    return "\\p{Lowercase}" + added({"Ll"});
  if (name == "punct")
    return category("P") + R"($+<=>^`|~)";
  if (name == "xdigit")
    return hexDigit();
  if (name == "blank")
    return R"(\p{Zs}\t)";
  if (name == "ascii")
    return R"(\x{0}-\x{7F})";
  if (name == "any")
    return everything();
  return std::nullopt;
}

} // namespace

std::string space() {
  return R"(\x{9}-\x{D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F})"
         R"(\x{3000})";
}

std::string digit() { return category("Nd"); }

std::string word() { return alphabetic() + category("M") + digit() + category("Pc"); }

std::string hexDigit() { return "0-9a-fA-F"; }

std::string everything() { return R"(\x{0}-\x{10FFFF})"; }

std::optional<std::string> property(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    const bool upper = c >= 'A' && c <= 'Z', lower = c >= 'a' && c <= 'z';
    if (upper || lower || (c >= '0' && c <= '9'))
      plain += upper ? char(c + 32) : c;
    else if (c != ' ' && c != '_' && c != '-')
      return std::nullopt;
  }
  auto same = [&](std::string_view known) {
    return std::ranges::equal(known, plain, [](char a, char b) { return (a | 0x20) == b; });
  };
  for (std::string_view known : kShort)
    if (same(known))
      return category(known);
  for (const Named &known : kCategories)
    if (known.name == plain)
      return category(known.body);
  if (auto body = posix(plain))
    return body;
  if (plain.empty())
    return std::nullopt;
  if (std::ranges::count(kBinary, plain))
    return "\\p{" + plain + "}";
  return "\\p{sc:" + plain + "}";
}

} // namespace gpt2c::rt::classes
