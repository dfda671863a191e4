// A main for a fuzz target where there is no libFuzzer: mutate_<Target> SECONDS [SEED
// FILE|FOLDER..] feeds it changed copies of the seeds, the same ones in the same order in every
// run. It knows nothing of coverage; any compiler builds it, and every run of the tests has it.
// GPT2C_FUZZ_SECONDS in the environment is there in place of SECONDS. An input that crashes the
// target, or takes 20 seconds, is left in ./failed-input.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern "C" __attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size,
                                                                size_t maxSize, unsigned seed);

namespace {

constexpr size_t kMaxSize = 1 << 16;
std::mt19937_64 random64(20);
std::vector<uint8_t> input(kMaxSize);
size_t inputSize = 0;

size_t below(size_t n) { return n ? size_t(random64() % n) : 0; }

extern "C" void onFailure(int number) {
  const int file = ::open("failed-input", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file >= 0 && ::write(file, input.data(), inputSize) == ssize_t(inputSize))
    ::close(file);
  ::signal(number, SIG_DFL);
  ::raise(number);
}

} // namespace

/// One change: a byte, a number of 1 to 8 bytes, a piece left out, doubled or moved.
extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t maxSize) {
  const size_t at = below(size), length = std::min(size - at, 1 + below(16));
  switch (size ? below(7) : 3) {
  case 0:
    data[at] ^= uint8_t(1u << below(8));
    break;
  case 1:
    data[at] = uint8_t(below(256));
    break;
  case 2: {
    const uint64_t values[] = {0, 1, 0x7f, 0xff, 0x7fffffff, 0xffffffff, ~0ull >> 1, ~0ull};
    const uint64_t value = values[below(std::size(values))];
    for (size_t i = 0; i < std::min<size_t>(length, 8); ++i)
      data[at + i] = uint8_t(value >> (8 * i));
    break;
  }
  case 3:
    if (size < maxSize) {
      std::copy_backward(data + at, data + size, data + size + 1);
      data[at] = uint8_t(below(256));
      return size + 1;
    }
    break;
  case 4:
    std::copy(data + at + length, data + size, data + at);
    return size - length;
  case 5:
    if (size + length <= maxSize) {
      std::copy_backward(data + at, data + size, data + size + length);
      return size + length;
    }
    break;
  default: {
    const std::vector<uint8_t> piece(data + at, data + at + length);
    std::copy_n(piece.begin(), length, data + below(size - length + 1));
  }
  }
  return size;
}

int main(int argc, char **argv) {
  if (argc < 2)
    return std::fprintf(stderr, "SECONDS [SEED FILE|FOLDER...]\n"), 1;
  for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM})
    ::signal(number, onFailure);

  std::vector<std::string> files;
  for (int i = 2; i < argc; ++i) {
    if (std::filesystem::is_regular_file(argv[i]))
      files.emplace_back(argv[i]);
    else
      for (const auto &entry : std::filesystem::recursive_directory_iterator(argv[i]))
        if (entry.is_regular_file())
          files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  std::vector<std::vector<uint8_t>> seeds(1);
  for (const std::string &file : files) {
    std::ifstream in(file, std::ios::binary);
    std::vector<uint8_t> bytes((std::istreambuf_iterator<char>(in)), {});
    if (bytes.size() <= kMaxSize / 2)
      seeds.push_back(std::move(bytes));
  }

  using Clock = std::chrono::steady_clock;
  const char *seconds = std::getenv("GPT2C_FUZZ_SECONDS");
  const auto end =
      Clock::now() + std::chrono::duration<double>(std::atof(seconds ? seconds : argv[1]));
  size_t count = 0;
  for (; Clock::now() < end; ++count) {
    // The seeds as they are, then each with few changes or many.
    const std::vector<uint8_t> &seed = seeds[count < seeds.size() ? count : below(seeds.size())];
    inputSize = seed.size();
    std::copy(seed.begin(), seed.end(), input.begin());
    for (size_t n = count < seeds.size() ? 0 : size_t(1) << below(6); n > 0; --n)
      inputSize = LLVMFuzzerCustomMutator ? LLVMFuzzerCustomMutator(input.data(), inputSize,
                                                                    kMaxSize, unsigned(random64()))
                                          : LLVMFuzzerMutate(input.data(), inputSize, kMaxSize);
    ::alarm(20);
    // A copy of just this size: reading beyond it is seen by a sanitizer.
    const std::vector<uint8_t> exact(input.begin(), input.begin() + std::ptrdiff_t(inputSize));
    LLVMFuzzerTestOneInput(exact.data(), exact.size());
  }
  std::printf("%zu inputs from %zu seeds, none fails\n", count, seeds.size());
  return count >= seeds.size() ? 0 : 1;
}
