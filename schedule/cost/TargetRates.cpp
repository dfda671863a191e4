#include "schedule/cost/TargetRates.h"

#include "ir/Error.h"

#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

namespace gpt2c {

namespace {
struct Member {
  llvm::StringLiteral name;
  double TargetRates::*value;
  double unit; ///< of the file, in that of the member
};
constexpr double bytesOfGigabyteASecond = 1e3, operationsOfGigaflop = 1e3;

const Member members[] = {
    {"launch_us", &TargetRates::launch, 1},
    {"memory_gbps", &TargetRates::memory, bytesOfGigabyteASecond},
    {"hop_us", &TargetRates::hop, 1},
    {"products_gflops", &TargetRates::products, operationsOfGigaflop},
};
constexpr llvm::StringLiteral multiprocessorsName = "multiprocessors";
} // namespace

std::optional<TargetRates> TargetRates::named(llvm::StringRef machine) {
  const TargetRates h200;
  TargetRates h100;
  h100.memory = h200.memory * 3.35 / 4.8; // the bandwidths that NVIDIA states of both, TB/s
  return llvm::StringSwitch<std::optional<TargetRates>>(machine)
      .Case("h200", h200)
      .Case("h100", h100)
      .Default(std::nullopt);
}

llvm::Expected<TargetRates> TargetRates::parse(llvm::StringRef text) {
  auto json = llvm::json::parse(text);
  if (!json)
    return makeError(ExitCode::Usage, "no JSON: " + llvm::toString(json.takeError()));
  const llvm::json::Object *object = json->getAsObject();
  if (!object)
    return makeError(ExitCode::Usage, "an object of a target's numbers is expected");
  TargetRates rates;
  for (const Member &m : members) {
    const std::optional<double> v = object->getNumber(m.name);
    if (!v || !(*v > 0) || *v > 1e12)
      return makeError(ExitCode::Usage, "'" + m.name + "' is no number above 0");
    rates.*m.value = *v * m.unit;
  }
  const std::optional<int64_t> count = object->getInteger(multiprocessorsName);
  if (!count || *count < 1 || *count > 4096)
    return makeError(ExitCode::Usage, "'" + multiprocessorsName + "' is no number from 1 to 4096");
  rates.multiprocessors = *count;
  return rates;
}

std::string TargetRates::print(llvm::StringRef deviceName) const {
  llvm::json::Object object{{"device", deviceName}, {multiprocessorsName, multiprocessors}};
  for (const Member &m : members)
    object[m.name] = this->*m.value / m.unit;
  return llvm::formatv("{0:2}\n", llvm::json::Value(std::move(object))).str();
}

} // namespace gpt2c
