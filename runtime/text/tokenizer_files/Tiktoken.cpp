// tiktoken's files: a line for each token, its bytes as base64 and its rank, which is its id. Two
// tokens merge where their bytes together are a token; the one of lowest rank first.
#include "runtime/text/tokenizer/ByteAlphabet.h"
#include "runtime/text/tokenizer/PreTokenizer.h"
#include "runtime/text/tokenizer_files/TokenizerReader.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <tuple>

namespace gpt2c::rt {
namespace {

using Step = TokenizerStep;

// The files do not say how texts are cut. What does: GPT-2's ranks are 50256; Qwen cuts each digit,
// all others that are known cut three digits at most.
constexpr std::size_t kGpt2Ranks = 50256;

std::string pattern(bool singleDigits) {
  return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})" +
         std::string(singleDigits ? "" : "{1,3}") +
         R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
}

/// "aGVsbG8= 15"
std::optional<std::pair<std::string, std::int32_t>> parseLine(std::string_view line) {
  const std::size_t space = line.find(' ');
  if (space == line.npos || space == 0)
    return std::nullopt;
  auto bytes = fromBase64(line.substr(0, space));
  std::string_view rank = line.substr(space + 1);
  if (rank.ends_with('\r'))
    rank.remove_suffix(1);
  if (!bytes || bytes->empty() || rank.empty() || rank.size() > 7 ||
      rank.find_first_not_of("0123456789") != rank.npos)
    return std::nullopt;
  return std::pair(*bytes, std::stoi(std::string(rank)));
}

std::string_view takeLine(std::string_view &file) {
  const std::size_t end = std::min(file.find('\n'), file.size());
  std::string_view line = file.substr(0, end);
  file.remove_prefix(std::min(end + 1, file.size()));
  return line;
}

Status addMerges(std::vector<std::pair<std::string, std::int32_t>> &tokens, ModelBuilder &builder) {
  std::ranges::sort(tokens, {}, [](const auto &token) { return token.second; });
  for (const auto &[bytes, rank] : tokens) {
    std::vector<std::tuple<std::int32_t, std::int32_t, std::string, std::string>> pairs;
    for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
      std::string left = alphabet::characters(std::string_view(bytes).substr(0, cut)),
                  right = alphabet::characters(std::string_view(bytes).substr(cut));
      const std::int32_t l = builder.find(left), r = builder.find(right);
      if (l >= 0 && r >= 0)
        pairs.emplace_back(l, r, std::move(left), std::move(right));
    }
    std::ranges::sort(pairs);
    for (const auto &[l, r, left, right] : pairs)
      if (Status status = builder.addMerge(left, right, "rank " + std::to_string(rank));
          !status.ok())
        return status;
  }
  return {};
}

} // namespace

bool isTiktoken(std::string_view file) { return parseLine(takeLine(file)).has_value(); }

Status readTiktoken(const std::string &path, std::string_view file, ModelBuilder &builder) {
  TokenizerModel &model = builder.model();
  model.bytes = model.ignoreMerges = true;
  std::vector<std::pair<std::string, std::int32_t>> tokens;
  for (std::size_t number = 1; !file.empty(); ++number) {
    const std::string_view line = takeLine(file);
    if (line.empty())
      continue;
    auto token = parseLine(line);
    if (!token)
      return builder.fail("line " + std::to_string(number) + ": expected base64 and a rank");
    if (Status status = builder.addToken(alphabet::characters(token->first), token->second);
        !status.ok())
      return status;
    tokens.push_back(std::move(*token));
  }
  std::string name = std::filesystem::path(path).filename().string();
  std::ranges::transform(name, name.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  model.preTokenizers = {{Step::Kind::SplitRegex,
                          Step::Isolated,
                          tokens.size() == kGpt2Ranks ? std::string(kGpt2Pattern)
                                                      : pattern(name.find("qwen") != name.npos),
                          {}}};
  return addMerges(tokens, builder);
}

} // namespace gpt2c::rt
