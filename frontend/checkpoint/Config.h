// config.json and adapter_config.json, key by key. What nobody reads must be known not to change a
// number.
#pragma once

#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Error.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gpt2c {

/// An object of such a file. A key that is null is absent. Problems are gathered, so that reading
/// goes on, with some value, and all of them are told at once: by takeError(), which must be asked
/// before anything that was read is used.
class Config {
public:
  /// `name` stands for the file in messages, `wayOut` is a sentence that ends those on what is not
  /// known. InvalidModel where the text is no JSON object.
  static llvm::Expected<Config> parse(llvm::StringRef text, llvm::StringRef name,
                                      llvm::StringRef wayOut = exportInstead);

  bool has(llvm::StringRef key) const;
  bool wasRead(llvm::StringRef key) const { return read_.contains(key); }
  /// Whether the key is there, be it null.
  bool mentions(llvm::StringRef key) const;
  /// Whether the value is -1, as sizes of groups say "all".
  bool isWholeRow(llvm::StringRef key);
  bool isFlag(llvm::StringRef key) const; ///< true or false; no problem where it is not
  bool isText(llvm::StringRef key) const;
  bool isList(llvm::StringRef key) const;
  std::vector<std::string> keys() const; ///< sorted
  /// A whole number from 1 to 2^28; without a default the key must be there.
  int64_t size(llvm::StringRef key, std::optional<int64_t> ifAbsent = std::nullopt);
  std::optional<int64_t> maybeSize(llvm::StringRef key);
  int64_t count(llvm::StringRef key, int64_t ifAbsent); ///< a size, or 0
  /// A finite number above 0.
  double positive(llvm::StringRef key, std::optional<double> ifAbsent = std::nullopt);
  std::optional<double> maybePositive(llvm::StringRef key);
  bool flag(llvm::StringRef key, bool ifAbsent);
  std::string text(llvm::StringRef key, llvm::StringRef ifAbsent);
  std::vector<std::string> texts(llvm::StringRef key); ///< empty where it is absent
  std::vector<int64_t> counts(llvm::StringRef key);    ///< a list; empty where it is absent
  std::optional<Config> object(llvm::StringRef key);

  /// A key whose value is not one that this compiler knows: "'model_type' is 'x': `why`".
  void unsupported(llvm::StringRef key, const llvm::Twine &why);
  void invalid(llvm::StringRef key, const llvm::Twine &why);
  /// Keys that were not read become problems, but for `keys`.
  void refuseUnreadBut(llvm::ArrayRef<llvm::StringRef> keys);
  /// InvalidModel for what no config.json may say; else Unsupported, with everything in it that
  /// this compiler does not know.
  llvm::Error takeError();

private:
  static constexpr const char *exportInstead =
      "Export the model to ONNX and compile that: it says itself what it computes";

  struct State;
  Config(std::shared_ptr<State> state, const nlohmann::json &object, std::string where)
      : state_(std::move(state)), object_(&object), where_(std::move(where)) {}
  const nlohmann::json *find(llvm::StringRef key);

  std::shared_ptr<State> state_; // of all objects of one file
  const nlohmann::json *object_;
  std::string where_; // in front of keys in messages: "rope_scaling."
  llvm::StringSet<> read_;
};

} // namespace gpt2c
