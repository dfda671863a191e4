// Renders chat templates for the script beside this file: requests on standard input are a u32 and
// a template, a u32 and a context as JSON; answers are a byte (0: a text, 1: an error), a u32 and
// so many bytes.
#include "runtime/text/ChatTemplate.h"

#include <cstdint>
#include <cstdio>

using namespace gpt2c::rt;

namespace {

constexpr std::time_t kNow = 1'700'000'000; // 14 November 2023

bool readText(std::string &text) {
  std::uint32_t size = 0;
  if (std::fread(&size, sizeof(size), 1, stdin) != 1)
    return false;
  text.resize(size);
  return std::fread(text.data(), 1, size, stdin) == size;
}

} // namespace

int main() {
  std::string source, context;
  while (readText(source) && readText(context)) {
    Result<ChatTemplate> chat = ChatTemplate::parse(source);
    Result<std::string> text =
        chat ? chat->render(context, kNow) : Result<std::string>(chat.status());
    const std::string out = text ? *text : text.status().message();
    const auto size = std::uint32_t(out.size());
    std::fputc(text ? 0 : 1, stdout);
    std::fwrite(&size, sizeof(size), 1, stdout);
    std::fwrite(out.data(), 1, size, stdout);
    std::fflush(stdout);
  }
}
