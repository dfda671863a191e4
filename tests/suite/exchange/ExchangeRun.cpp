#include "ExchangeRun.h"

#include "ir/Tensor.h"
#include "runtime/plan/Expr.h"

#include "llvm/ADT/STLExtras.h"

#include <barrier>
#include <bit>
#include <cmath>
#include <cstring>
#include <exception>
#include <optional>
#include <thread>

namespace gpt2c::exchange {

void expect(bool condition, const std::string &message) {
  if (!condition)
    throw Failure{message};
}
void expectOk(const rt::Status &s) { expect(s.ok(), s.message()); }

Scalar scalarOf(Store s) {
  return s == Store::F32 ? Scalar::F32 : s == Store::F16 ? Scalar::F16 : Scalar::BF16;
}
size_t bytesOf(Store s) { return s == Store::F32 ? 4 : 2; }
uint32_t bitsOf(Store s, double value) {
  return s == Store::F32   ? std::bit_cast<uint32_t>(float(value))
         : s == Store::F16 ? floatToHalf(float(value))
                           : floatToBfloat(float(value));
}
double valueOf(Store s, uint32_t bits) {
  return s == Store::F32   ? std::bit_cast<float>(bits)
         : s == Store::F16 ? halfToFloat(uint16_t(bits))
                           : bfloatToFloat(uint16_t(bits));
}

Rank::Rank(std::shared_ptr<CudaDevice> device, std::unique_ptr<rt::cuda::Exchange> end,
           const std::vector<char> &image, llvm::ArrayRef<KernelSource> kernels)
    : device_(std::move(device)), end_(std::move(end)), kernels_(kernels) {
  auto module = device_->loadModule(std::as_bytes(std::span(image)), "the kernels of an exchange");
  expectOk(module.status());
  module_ = module.take();
  for (const KernelSource &kernel : kernels) {
    auto function = module_.function(kernel.name, kernel.sharedBytes);
    expectOk(function.status());
    expectOk(device_->residentBlocks(*function, kernel.threads, 0).status()); // so it is loaded
    functions_.push_back(*function);
  }
}

DeviceMemory Rank::memory(Store type, llvm::ArrayRef<uint32_t> bits) {
  auto memory = device_->allocate(bits.size() * bytesOf(type), "a tensor");
  expectOk(memory.status());
  write(type, memory->address(), bits);
  return memory.take();
}

void Rank::write(Store type, CUdeviceptr to, llvm::ArrayRef<uint32_t> bits) {
  std::vector<std::byte> bytes(bits.size() * bytesOf(type));
  for (size_t i = 0; i < bits.size(); ++i)
    std::memcpy(bytes.data() + i * bytesOf(type), &bits[i], bytesOf(type));
  expectOk(device_->upload(to, bytes.data(), bytes.size()));
}

std::vector<uint32_t> Rank::read(Store type, CUdeviceptr from, size_t count) {
  std::vector<std::byte> bytes(count * bytesOf(type));
  expectOk(device_->download(bytes.data(), from, bytes.size()));
  std::vector<uint32_t> bits(count);
  for (size_t i = 0; i < count; ++i)
    std::memcpy(&bits[i], bytes.data() + i * bytesOf(type), bytesOf(type));
  return bits;
}

void Rank::launch(size_t kernel, const Grid &grid, const Arguments &arguments) {
  const KernelSource &source = kernels_[kernel];
  rt::cuda::Launch launch;
  launch.function = functions_[kernel];
  launch.block[0] = source.threads;
  launch.sharedBytes = source.sharedBytes;
  launch.programmatic = true;
  for (int i = 0; i < 3; ++i)
    launch.grid[i] = unsigned(*rt::evalExpr(grid[size_t(i)], {}));
  struct Slot {
    rt::cuda::TensorMap map;
    uint64_t word;
  };
  std::vector<Slot> slots(source.params.size());
  std::vector<void *> pointers;
  for (auto [slot, name] : llvm::zip_equal(slots, source.params)) {
    pointers.push_back(&slot.word);
    slot.word = end_->record();
    if (name == "exchange")
      continue;
    const auto given = arguments.find(name);
    expect(given != arguments.end(), source.name + " has no argument '" + name + "'");
    if (const auto *of = std::get_if<MapOf>(&given->second)) {
      auto map = rt::cuda::encodeTensorMap(device_->api(), of->address, uint64_t(of->rows),
                                           uint64_t(of->columns), unsigned(of->boxRows));
      expectOk(map.status());
      slot.map = *map;
      pointers.back() = &slot.map;
    } else if (const auto *address = std::get_if<CUdeviceptr>(&given->second)) {
      slot.word = *address;
    } else {
      slot.word = uint64_t(std::get<int>(given->second));
    }
  }
  expectOk(device_->launch(launch, pointers.data()));
}

void onAll(Ranks &ranks, const std::function<void(size_t rank, Rank &)> &f) {
  std::vector<std::optional<Failure>> failures(ranks.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ranks.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        f(r, *ranks[r]);
      } catch (const Failure &failure) {
        failures[r] = failure;
      }
    });
  for (std::thread &t : threads)
    t.join();
  for (size_t r = 0; r < ranks.size(); ++r)
    if (failures[r])
      throw Failure{"rank " + std::to_string(r) + ": " + failures[r]->message};
}

std::vector<std::vector<Bits>> play(Ranks &ranks, const Place &place, unsigned replays) {
  std::vector<std::vector<Bits>> got(ranks.size());
  std::barrier ready(std::ptrdiff_t(ranks.size())); // what makes a graph may wait for kernels
  onAll(ranks, [&](size_t r, Rank &rank) {
    const Work work = place(r, rank);
    expectOk(rank.device().synchronize());
    if (replays == 0) {
      work.launch();
    } else {
      expectOk(rt::cuda::Graph::beginCapture(rank.device()));
      work.launch();
      auto graph = rt::cuda::Graph::finishCapture(rank.shared(), {});
      expectOk(graph.status());
      expectOk(graph->upload());
      ready.arrive_and_wait();
      for (unsigned i = 0; i < replays; ++i)
        expectOk(graph->launch());
      expectOk(rank.device().synchronize());
    }
    expectOk(rank.device().synchronize());
    expectOk(rank.end().check());
    got[r] = work.take();
  });
  return got;
}

void compare(llvm::ArrayRef<std::vector<Bits>> got, size_t number, Store type,
             llvm::ArrayRef<double> want, const std::function<double(size_t)> &bound,
             const std::function<std::string(size_t)> &where) {
  for (size_t i = 0; i < want.size(); ++i) {
    const uint32_t bits = got[0][number][i];
    expect(std::fabs(valueOf(type, bits) - want[i]) <= bound(i),
           where(i) + ": " + std::to_string(valueOf(type, bits)) + ", not " +
               std::to_string(want[i]));
    for (size_t r = 1; r < got.size(); ++r)
      expect(got[r][number][i] == bits,
             where(i) + ": rank " + std::to_string(r) + " has other bits than rank 0");
  }
}

void expectFault(Ranks &ranks, const Place &place) {
  onAll(ranks, [&](size_t r, Rank &rank) {
    if (r + 1 == ranks.size())
      return;
    const Work work = place(r, rank);
    for (int i = 0; i < 3; ++i) // the others do not wait again
      work.launch();
    expectOk(rank.device().synchronize());
    const rt::Status s = rank.end().check();
    const std::string whom = "in vain for rank " + std::to_string(ranks.size() - 1) + ",";
    expect(!s.ok() && s.message().find(whom) != std::string::npos,
           "no error that says whom it waited for: " + s.message());
  });
}

} // namespace gpt2c::exchange
