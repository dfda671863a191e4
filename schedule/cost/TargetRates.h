// What things take on a machine: what `gpt2c --calibrate-target` measures, and target files hold.
#pragma once

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <optional>
#include <string>

namespace gpt2c {

/// Estimates were fitted on an H200: those of another machine are in proportion to what both
/// measure alike (templates/calibrate/calibrate.cuh).
struct TargetRates {
  int64_t multiprocessors = 0; ///< 0: those of the architecture
  double launch = 0.48;     ///< microseconds from a kernel's start to that of the next in a graph
  double memory = 4.49e6;   ///< bytes a microsecond that a kernel reads of memory
  double hop = 0.935;       ///< microseconds of a barrier of all multiprocessors
  double products = 4.63e6; ///< fp16 operations a microsecond of a multiprocessor, by mma

  /// How many times as long as on an H200 launches, reads of memory, hops between multiprocessors
  /// and products of one take.
  double launches() const { return launch / TargetRates().launch; }
  double reads() const { return TargetRates().memory / memory; }
  double hops() const { return hop / TargetRates().hop; }
  double multiplies() const { return TargetRates().products / products; }
  bool operator==(const TargetRates &) const = default;

  /// h100 or h200; none: no such machine is built in.
  static std::optional<TargetRates> named(llvm::StringRef machine);
  /// What print() wrote. Errors: Usage, with the member that is missing or no such number.
  static llvm::Expected<TargetRates> parse(llvm::StringRef text);
  /// As a file: JSON, with the name of the device.
  std::string print(llvm::StringRef deviceName) const;
};

} // namespace gpt2c
