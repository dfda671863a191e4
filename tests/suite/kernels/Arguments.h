// The arguments of a launch, by the names of its kernel's parameters.
#pragma once

#include "codegen/KernelSource.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace gpt2c::kernels {

struct Tensor;

/// A tensor map over an f16 tensor [rows, columns], or [matrices, rows, columns].
struct MapOf {
  const Tensor *tensor;
  int rows, columns, boxRows;
  std::optional<uint64_t> matrices = {};
};
using Argument = std::variant<const Tensor *, std::nullptr_t, int, float, MapOf>;

class Arguments {
public:
  Arguments() = default;
  Arguments(std::initializer_list<std::pair<const char *, Argument>> list) {
    for (const auto &[name, value] : list)
      set(name, value);
  }

  /// For a parameter that the kernel must have; takes the place of what had that name.
  Arguments &set(const std::string &name, const Argument &value) {
    entries_[name] = {value, false};
    return *this;
  }
  /// For one that only some of the kernels have for which a helper makes arguments.
  Arguments &offer(const std::string &name, const Argument &value) {
    entries_[name] = {value, true};
    return *this;
  }
  Arguments &drop(const std::string &name) {
    entries_.erase(name);
    return *this;
  }

  /// The arguments in the order of the kernel's parameters. An error names every parameter without
  /// an argument and every argument without a parameter.
  llvm::Expected<std::vector<Argument>> inOrder(const KernelSource &kernel) const {
    std::vector<Argument> list;
    std::vector<std::string> wrong;
    for (const std::string &name : kernel.params)
      if (auto it = entries_.find(name); it != entries_.end())
        list.push_back(it->second.value);
      else
        wrong.push_back("its parameter '" + name + "' has no argument");
    for (const auto &[name, entry] : entries_)
      if (!entry.offered && !llvm::is_contained(kernel.params, name))
        wrong.push_back("it has no parameter '" + name + "'");
    if (wrong.empty())
      return list;
    return llvm::createStringError(kernel.name + " takes " + llvm::join(kernel.params, ", ") +
                                   ": " + llvm::join(wrong, "; "));
  }

private:
  struct Entry {
    Argument value;
    bool offered = false;
  };
  std::map<std::string, Entry> entries_;
};

} // namespace gpt2c::kernels
