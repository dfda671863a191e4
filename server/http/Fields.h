// The fields of a request's body: each is read once, by name, type and range, and what nobody knows
// is an error by its name.
#pragma once

#include "server/http/Json.h"

#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace gpt2c::serve {

/// A field that is null counts as not there. After the first error nothing more is read.
class Fields {
public:
  explicit Fields(const boost::json::object &body) : body_(body) {}

  /// The field where it is there; it counts as known from now on.
  const boost::json::value *find(const char *name);

  /// These leave `to` alone where the field is not there, and say whether it is.
  bool integer(const char *name, int64_t &to, int64_t least, int64_t most);
  bool integer(const char *name, int32_t &to, int32_t least, int32_t most);
  bool number(const char *name, double &to);
  bool boolean(const char *name, bool &to);
  bool text(const char *name, std::string &to);
  /// A text or a list of up to `most` texts.
  bool texts(const char *name, std::vector<std::string> &to, size_t most);
  /// A list of integers of 32 bits.
  bool ids(const char *name, std::vector<int32_t> &to);

  /// Fields that change no answer of this server.
  void ignore(std::initializer_list<const char *> names);
  /// A field that may be there with nothing but `harmless` (JSON), as `why` says.
  void refuse(const char *name, const char *harmless, const std::string &why);
  /// An error where a field is not known.
  void finish();

  void fail(const char *name, const std::string &message);
  const std::optional<ApiError> &error() const { return error_; }

private:
  const boost::json::object &body_;
  std::set<std::string_view> known_;
  std::optional<ApiError> error_;
};

/// A list of integers of 32 bits, or nothing where it is something else.
std::optional<std::vector<int32_t>> idsOf(const boost::json::value &value);
/// A number of any kind.
std::optional<double> numberOf(const boost::json::value &value);
/// An integer, also one that is written as 3.0.
std::optional<int64_t> integerOf(const boost::json::value &value);
/// The view of a string; `value` is one.
std::string_view textOf(const boost::json::value &value);

} // namespace gpt2c::serve
