// A small tokenizer in files of its own: the 256 bytes (id = byte), then one token per merge, then
// <|endoftext|>. Tests change the files before they read them.
#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace gpt2c::rt::test {

/// The character GPT-2's files write for a byte, as a sequence of UTF-8.
inline std::string byteName(int byte) {
  int character = byte;
  if (byte <= 32)
    character = 256 + byte;
  else if (byte >= 127 && byte <= 160)
    character = 256 + 33 + (byte - 127);
  else if (byte == 173)
    character = 256 + 33 + 34;
  if (character < 0x80)
    return std::string(1, char(character));
  return {char(0xC0 | character >> 6), char(0x80 | (character & 63))};
}

/// A folder that exists as long as the object does.
class TemporaryFolder {
public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "gpt2c-test-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder &) = delete;

  std::string path(const std::string &file = "") const { return (path_ / file).string(); }
  void write(const std::string &file, const std::string &text) const {
    std::ofstream(path(file), std::ios::binary) << text;
  }

private:
  std::filesystem::path path_;
};

struct Toy {
  nlohmann::json vocab = nlohmann::json::object();
  std::vector<std::pair<std::string, std::string>> merges = {
      {"l", "l"}, {"h", "e"}, {"he", "ll"}, {"hell", "o"}, {"Ġ", "hello"},
      {"Ã", "©"}, {"a", "b"}, {"b", "c"},   {"ab", "c"}};

  Toy() {
    for (int byte = 0; byte < 256; ++byte)
      vocab[byteName(byte)] = byte;
    for (const auto &[left, right] : merges)
      vocab[left + right] = vocab.size();
    vocab["<|endoftext|>"] = vocab.size();
  }

  int id(const std::string &name) const { return vocab.at(name); }

  std::string mergesText() const {
    std::string text = "#version: 0.2\n";
    for (const auto &[left, right] : merges)
      text.append(left).append(" ").append(right).append("\n");
    return text;
  }

  /// The same tokenizer as the content of a tokenizer.json.
  nlohmann::json tokenizerJson() const {
    nlohmann::json root = {
        {"version", "1.0"},
        {"truncation", nullptr},
        {"padding", nullptr},
        {"normalizer", nullptr},
        {"pre_tokenizer",
         {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}}},
        {"post_processor", {{"type", "ByteLevel"}, {"trim_offsets", false}}},
        {"decoder", {{"type", "ByteLevel"}}},
        {"added_tokens", nlohmann::json::array({addedToken("<|endoftext|>", true)})},
        {"model",
         {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", ""},
          {"end_of_word_suffix", ""},
          {"fuse_unk", false},
          {"vocab", vocab},
          {"merges", nlohmann::json::array()}}}};
    for (const auto &[left, right] : merges)
      root["model"]["merges"].push_back(std::string(left).append(" ").append(right));
    return root;
  }

  /// The entry of an added token: one of the vocabulary, or a new one with the next id.
  nlohmann::json addedToken(const std::string &content, bool special) const {
    return {{"id", vocab.value(content, int(vocab.size()))},
            {"content", content},
            {"single_word", false},
            {"lstrip", false},
            {"rstrip", false},
            {"normalized", false},
            {"special", special}};
  }

  void writeVocabAndMerges(const TemporaryFolder &folder) const {
    folder.write("vocab.json", vocab.dump());
    folder.write("merges.txt", mergesText());
  }
};

} // namespace gpt2c::rt::test
