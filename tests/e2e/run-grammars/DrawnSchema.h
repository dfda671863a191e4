// Random JSON schemas, and whether a value fits one: written apart from what compiles them, for the
// keywords that are drawn alone.
#pragma once

#include <nlohmann/json.hpp>

#include <random>
#include <string>

namespace gpt2c::e2e {

class DrawnSchemas {
public:
  explicit DrawnSchemas(unsigned seed) : random_(seed) {}

  /// A schema of an object, of a few levels.
  nlohmann::ordered_json next();

private:
  using Json = nlohmann::ordered_json;

  int below(int n) { return int(random_() % unsigned(n)); }
  Json any(int depth);
  Json object(int depth);
  Json array(int depth);
  Json string();
  Json number();
  Json literal();

  std::mt19937 random_;
};

/// Whether `value` fits `schema`, which next() gave; `why` gets the place where it does not.
bool fits(const nlohmann::ordered_json &value, const nlohmann::ordered_json &schema,
          const nlohmann::ordered_json &root, std::string &why);

} // namespace gpt2c::e2e
