// Texts to tokens and back for the scripts beside this file.
//   encode TOKENIZER [--blob]    --blob: through the form that plans have
// Requests come on standard input: a byte (e: encode as the tokenizer adds tokens, n: without them,
// d: decode), a u32 and so many bytes (of text; of i32 ids). Answers go to standard output: a u32
// and so many bytes (of ids; of text). On standard error, in the end: seconds within encode.
#include "runtime/text/tokenizer/Tokenizer.h"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>

using namespace gpt2c::rt;

namespace {

bool readBytes(void *to, std::size_t bytes) { return std::fread(to, 1, bytes, stdin) == bytes; }

void answer(const void *from, std::size_t bytes) {
  const auto size = std::uint32_t(bytes);
  std::fwrite(&size, sizeof(size), 1, stdout);
  std::fwrite(from, 1, bytes, stdout);
}

} // namespace

int main(int argc, char **argv) {
  if (argc < 2)
    return 1;
  Result<Tokenizer> tokenizer = Tokenizer::fromFiles(argv[1]);
  if (tokenizer && argc > 2 && !std::strcmp(argv[2], "--blob")) {
    const std::string blob = tokenizer->serialize();
    tokenizer =
        Tokenizer::fromBytes({reinterpret_cast<const std::uint8_t *>(blob.data()), blob.size()});
  }
  if (!tokenizer) {
    std::fprintf(stderr, "%s\n", tokenizer.status().message().c_str());
    return int(tokenizer.status().code());
  }
  char what = 0;
  std::uint32_t size = 0;
  std::chrono::duration<double> spent{};
  while (readBytes(&what, 1) && readBytes(&size, sizeof(size))) {
    std::string bytes(size, '\0');
    if (!readBytes(bytes.data(), size))
      break;
    if (what == 'd') {
      std::vector<std::int32_t> ids(size / sizeof(std::int32_t));
      std::memcpy(ids.data(), bytes.data(), ids.size() * sizeof(ids[0]));
      const std::string text = tokenizer->decode(ids);
      answer(text.data(), text.size());
    } else {
      const auto begin = std::chrono::steady_clock::now();
      const auto ids =
          tokenizer->encode(bytes, {.addBos = what == 'e' ? AddBos::Auto : AddBos::No});
      spent += std::chrono::steady_clock::now() - begin;
      answer(ids.data(), ids.size() * sizeof(ids[0]));
    }
    std::fflush(stdout);
  }
  std::fprintf(stderr, "%.6f\n", spent.count());
  return 0;
}
