#include "Suite.h"

#include "codegen/KernelBuild.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <thread>

using namespace gpt2c::rt::cuda;

namespace gpt2c::kernels {

namespace {
constexpr size_t guardBytes = 256;
constexpr uint8_t guardByte = 0xA5;
/// The int8 that stands for NaN: no kernel writes it.
constexpr int8_t unwritten = -128;

void require(const rt::Status &status) {
  if (!status.ok())
    throw CaseFailure{status.message()};
}
template <typename T> T require(rt::Result<T> result) {
  require(result.status());
  return result.take();
}
} // namespace

uint16_t toHalf(double value) {
  float v = (float)value;
  uint32_t bits = std::bit_cast<uint32_t>(v), sign = bits >> 16 & 0x8000u;
  if (std::isnan(v))
    return (uint16_t)(sign | 0x7e00u);
  double magnitude = std::fabs(value);
  if (magnitude >= 65520.0)
    return (uint16_t)(sign | 0x7c00u);
  int exponent = magnitude == 0 ? -14 : std::max(-14, std::ilogb(magnitude));
  // nearbyint rounds to even; a carry into the next binade is the next bit pattern.
  auto steps = (uint32_t)std::nearbyint(std::ldexp(magnitude, 10 - exponent));
  return (uint16_t)(sign | (((uint32_t)(exponent + 14) << 10) + steps));
}

double fromHalf(uint16_t bits) {
  int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  double v = exponent == 31 ? (mantissa ? NAN : INFINITY)
             : exponent     ? std::ldexp(1024 + mantissa, exponent - 25)
                            : std::ldexp(mantissa, -24);
  return bits & 0x8000 ? -v : v;
}

double givenInteger(Given given, double v) {
  if (given == Given::Scale)
    return std::clamp(std::nearbyint((float)v * givenInverse), -127.0F, 127.0F);
  return std::clamp(std::nearbyint((float)v * givenInverse) + givenZero, -128.0F, 127.0F);
}

double givenValue(Given given, double v) {
  if (given == Given::Scale)
    return std::clamp(v * givenInverse, -127.0, 127.0);
  return std::clamp(v * givenInverse + givenZero, -128.0, 127.0);
}

void appendGiven(Given given, std::vector<Argument> &arguments) {
  if (given != Given::None)
    arguments.emplace_back(givenInverse);
  if (given == Given::ScaleAndZero)
    arguments.emplace_back(givenZero);
}

double rounded(double v, Scalar type) {
  switch (type) {
  case Scalar::F16:
    return fromHalf(toHalf(v));
  case Scalar::I8:
    return std::isnan(v) ? unwritten : v;
  case Scalar::I32:
    return v;
  case Scalar::F32:
    break;
  }
  return (float)v;
}

std::vector<double> Run::normal(size_t count, double deviation) {
  std::normal_distribution<double> distribution(0.0, deviation);
  std::vector<double> values(count);
  for (double &v : values)
    v = distribution(random_);
  return values;
}

std::vector<int> Run::integers(size_t count, int low, int high) {
  std::uniform_int_distribution<int> distribution(low, high);
  std::vector<int> values(count);
  for (int &v : values)
    v = distribution(random_);
  return values;
}

Tensor Run::allocate(Scalar type, size_t bytes, const void *contents) {
  Tensor t;
  t.type = type;
  t.bytes = bytes;
  t.memory = require(suite_.device_->allocate(bytes + 2 * guardBytes, "a test tensor"));
  t.address = t.memory.address() + guardBytes;
  std::vector<uint8_t> host(bytes + 2 * guardBytes, guardByte);
  std::memcpy(host.data() + guardBytes, contents, bytes);
  require(suite_.device_->upload(t.memory.address(), host.data(), host.size()));
  return t;
}

Tensor Run::input(std::vector<double> values, Scalar type) {
  std::vector<uint8_t> raw(values.size() * scalarBytes(type));
  for (size_t i = 0; i < values.size(); ++i) {
    if (type == Scalar::F16) {
      uint16_t h = toHalf(values[i]);
      std::memcpy(&raw[2 * i], &h, 2);
    } else if (type == Scalar::I8) {
      raw[i] = (uint8_t)(int8_t)rounded(values[i], type);
    } else {
      float f = (float)values[i];
      std::memcpy(&raw[4 * i], &f, 4);
    }
    values[i] = rounded(values[i], type);
  }
  Tensor t = allocate(type, raw.size(), raw.data());
  t.values = std::move(values);
  return t;
}

Tensor Run::output(size_t count, Scalar type) {
  return input(std::vector<double>(count, NAN), type);
}

Tensor Run::integerInput(const std::vector<int> &values) {
  return allocate(Scalar::F32, values.size() * 4, values.data());
}

Tensor Run::zeroed(size_t bytes) {
  std::vector<uint8_t> zeros(bytes);
  return allocate(Scalar::F32, bytes, zeros.data());
}

void Run::launch(int kernel, std::array<unsigned, 3> grid, std::vector<Argument> arguments) {
  const Suite::Kernel &k = suite_.kernels_[kernel];
  expect(k.refusal.empty(), k.refusal);
  if (arguments.size() != k.source.params.size())
    throw CaseFailure{k.source.name + ": " + std::to_string(arguments.size()) + " arguments for " +
                      std::to_string(k.source.params.size()) + " parameters"};
  union Slot {
    uint64_t word;
    TensorMap map;
    Slot() : map() {}
  };
  std::vector<Slot> storage(arguments.size());
  std::vector<void *> pointers;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (auto *tensor = std::get_if<const Tensor *>(&arguments[i]))
      storage[i].word = (*tensor)->address;
    else if (auto *map = std::get_if<MapOf>(&arguments[i]))
      storage[i].map =
          require(encodeTensorMap(suite_.device_->api(), map->tensor->address, map->rows,
                                  map->columns, map->boxRows, map->matrices));
    else if (auto *number = std::get_if<int>(&arguments[i]))
      std::memcpy(&storage[i].word, number, 4);
    else if (auto *real = std::get_if<float>(&arguments[i]))
      std::memcpy(&storage[i].word, real, 4);
    pointers.push_back(&storage[i]);
  }
  Launch launch;
  launch.function = k.function;
  for (int i = 0; i < 3; ++i)
    launch.grid[i] = grid[i];
  launch.block[0] = k.source.threads;
  launch.sharedBytes = k.source.sharedBytes;
  require(suite_.device_->launch(launch, pointers.data()));
  require(suite_.device_->synchronize());
}

std::vector<uint8_t> Run::fetch(const Tensor &tensor) {
  std::vector<uint8_t> host(tensor.bytes + 2 * guardBytes);
  require(suite_.device_->download(host.data(), tensor.memory.address(), host.size()));
  for (size_t i = 0; i < guardBytes; ++i)
    expect(host[i] == guardByte && host[guardBytes + tensor.bytes + i] == guardByte,
           "a kernel wrote outside its tensor, near byte " + std::to_string(i) + " of a guard");
  return {host.begin() + guardBytes, host.end() - guardBytes};
}

std::vector<double> Run::read(const Tensor &tensor) {
  std::vector<uint8_t> raw = fetch(tensor);
  std::vector<double> values(tensor.values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (tensor.type == Scalar::F16) {
      uint16_t h;
      std::memcpy(&h, &raw[2 * i], 2);
      values[i] = fromHalf(h);
    } else if (tensor.type == Scalar::I8) {
      values[i] = (int8_t)raw[i];
    } else {
      float f;
      std::memcpy(&f, &raw[4 * i], 4);
      values[i] = f;
    }
  }
  return values;
}

std::vector<int> Run::readIntegers(const Tensor &tensor) {
  std::vector<uint8_t> raw = fetch(tensor);
  std::vector<int> values(raw.size() / 4);
  std::memcpy(values.data(), raw.data(), raw.size());
  return values;
}

void Run::expectNear(const Tensor &tensor, std::span<const double> want, double relative,
                     std::span<const double> bound) {
  std::vector<double> got = read(tensor);
  expect(got.size() == want.size(), "sizes differ");
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i]))
      continue;
    double allowed = relative * std::fabs(want[i]) + (bound.empty() ? 0.0 : bound[i]);
    double error = got[i] == want[i] ? 0.0 : std::fabs(got[i] - want[i]);
    if (!(error <= allowed))
      throw CaseFailure{"element " + std::to_string(i) + " of " + std::to_string(got.size()) +
                        ": got " + std::to_string(got[i]) + ", want " + std::to_string(want[i]) +
                        ", error " + std::to_string(error) + ", allowed " +
                        std::to_string(allowed)};
    if (allowed > 0)
      worst = std::max(worst, error / allowed);
  }
}

void Run::expectEqual(std::span<const int> got, std::span<const int> want, const char *what) {
  expect(got.size() == want.size(), std::string(what) + ": sizes differ");
  for (size_t i = 0; i < got.size(); ++i)
    expect(got[i] == want[i], std::string(what) + "[" + std::to_string(i) + "]: got " +
                                  std::to_string(got[i]) + ", want " + std::to_string(want[i]));
}

void Run::expect(bool condition, const std::string &message) {
  if (!condition)
    throw CaseFailure{message};
}

int Suite::kernel(const std::string &group,
                  const std::function<KernelSource(llvm::StringRef)> &make) {
  kernels_.push_back({group, make("k" + std::to_string(kernelsOf_[group]++)), nullptr, {}});
  return (int)kernels_.size() - 1;
}

void Suite::test(const CaseName &name, std::function<void(Run &)> body, bool hopper) {
  cases_.push_back(
      {name.text, kernels_.back().group, std::move(body), hopper, kernels_.size() - 1, name.work});
}

void Suite::select(const Options &options) {
  std::erase_if(cases_, [&](const Case &test) {
    auto found = [&](const std::string &text) { return llvm::StringRef(test.name).contains(text); };
    return !options.filters.empty() && llvm::none_of(options.filters, found);
  });
  if (options.smoke)
    selectSmoke();
  std::vector<Case> share;
  for (size_t i = options.shard; i < cases_.size(); i += options.shards)
    share.push_back(std::move(cases_[i]));
  cases_ = std::move(share);
}

void Suite::selectSmoke() {
  // The least work that is still several blocks, or else the most there is.
  constexpr double several = 1e6;
  std::map<size_t, const Case *> chosen;
  for (const Case &test : cases_) {
    const Case *&best = chosen[test.kernel];
    if (!best || (best->work < several ? test.work > best->work
                                       : test.work >= several && test.work < best->work))
      best = &test;
  }
  std::vector<Case> kept;
  for (const auto &[kernel, test] : chosen)
    kept.push_back(*test);
  cases_ = std::move(kept);
}

bool Suite::compile(const Nvrtc &nvrtc, const std::string &arch, const std::string &cacheFolder,
                    std::map<std::string, std::vector<char>> &images) {
  std::map<std::string, std::vector<KernelSource>> groups;
  for (const Case &test : cases_)
    groups.try_emplace(test.group);
  for (const Kernel &kernel : kernels_)
    if (auto it = groups.find(kernel.group); it != groups.end())
      it->second.push_back(kernel.source);
  std::vector<std::string> texts;
  for (const auto &[name, sources] : groups)
    texts.push_back(moduleSource(sources));
  std::vector<KernelProgram> programs;
  for (const auto &[name, sources] : groups)
    programs.push_back({name + ".cu", texts[programs.size()]});
  const unsigned threads = std::clamp(std::thread::hardware_concurrency(), 1u, 16u);
  KernelCache cache(cacheFolder);
  auto built = buildKernels(nvrtc, programs, {{arch}, threads}, cache);
  if (!built) {
    llvm::errs() << toString(built.takeError()) << "\n";
    return false;
  }
  for (auto [i, group] : llvm::enumerate(groups))
    images[group.first] = std::move((*built)[i]);
  llvm::outs() << cases_.size() << " cases, " << images.size() << " groups of kernels for " << arch
               << ", " << cache.hits() << " of them from the cache\n";
  return true;
}

int Suite::run(const Options &options) {
  std::string arch = options.arch;
  if (!options.compileOnly) {
    auto device = CudaDevice::open();
    if (!device) {
      llvm::errs() << "skipped: " << device.status().message() << "\n";
      return 77;
    }
    device_ = device.take();
    llvm::outs() << device_->name() << ", " << device_->multiprocessors() << " SMs\n";
    int number = device_->capability().major * 10 + device_->capability().minor;
    if (arch.empty())
      arch = (options.ptx ? "compute_" : "sm_") + std::to_string(number) +
             (number >= 90 && !options.ptx ? "a" : "");
  }
  auto nvrtc = Nvrtc::load();
  if (!nvrtc) {
    llvm::errs() << toString(nvrtc.takeError()) << "\n";
    return 1;
  }
  std::map<std::string, std::vector<char>> images;
  select(options);
  if (!compile(**nvrtc, arch, options.kernelCache, images))
    return 1;
  if (options.compileOnly) {
    // What a block of Hopper may have.
    constexpr unsigned most = 227 * 1024;
    for (const Case &test : cases_)
      if (unsigned bytes = kernels_[test.kernel].source.sharedBytes;
          bytes > most && llvm::StringRef(arch).starts_with("sm_90")) {
        llvm::outs() << "FAIL  " << test.name << ": " << bytes << " bytes of shared memory\n";
        return 1;
      }
    for (const auto &[group, image] : images)
      if (!options.keep.empty())
        std::ofstream((llvm::Twine(options.keep) + "/" + group + "." + arch).str(),
                      std::ios::binary)
            .write(image.data(), image.size());
    return 0;
  }

  for (const auto &[group, image] : images) {
    auto module = device_->loadModule(std::as_bytes(std::span(image)), group);
    if (!module) {
      llvm::errs() << module.status().message() << "\n";
      return 1;
    }
    modules_[group] = module.take();
  }
  for (Kernel &kernel : kernels_) {
    if (!modules_.contains(kernel.group))
      continue;
    auto function = modules_[kernel.group].function(kernel.source.name, kernel.source.sharedBytes);
    if (function)
      kernel.function = *function;
    else
      kernel.refusal = function.status().message();
  }

  unsigned passed = 0, failed = 0;
  for (const Case &test : cases_) {
    if (test.hopper && arch != "sm_90a") {
      llvm::outs() << "skip  " << test.name << ": it needs sm_90a\n";
      continue;
    }
    Run run(*this, (uint32_t)std::hash<std::string>()(test.name));
    try {
      test.body(run);
      ++passed;
      llvm::outs() << "ok    " << test.name << llvm::format("  %.2f of the tolerance\n", run.worst);
    } catch (const CaseFailure &failure) {
      ++failed;
      llvm::outs() << "FAIL  " << test.name << ": " << failure.message << "\n";
      if (auto status = device_->synchronize(); !status.ok()) {
        llvm::outs() << "the device is lost: " << status.message() << "\n";
        break;
      }
    }
  }
  llvm::outs() << passed << " passed, " << failed << " failed\n";
  return failed == 0 && passed > 0 ? 0 : 1;
}

} // namespace gpt2c::kernels
