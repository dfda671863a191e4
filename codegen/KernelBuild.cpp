#include "codegen/KernelBuild.h"

#include "ir/Error.h"
#include "templates/Embedded.h"

#include "llvm/ADT/STLExtras.h"

#include <atomic>
#include <mutex>
#include <thread>

using namespace llvm;

namespace gpt2c {

/// The files of templates/ that `text` includes, directly or through others, in the order in which
/// they are met.
static void collectTemplates(StringRef text, std::vector<const EmbeddedFile *> &found) {
  while (!text.empty()) {
    StringRef line;
    std::tie(line, text) = text.split('\n');
    if (!line.consume_front("#include \""))
      continue;
    StringRef name = line.take_until([](char c) { return c == '"'; });
    auto file = find_if(embeddedTemplates(), [&](auto &f) { return StringRef(f.name) == name; });
    if (file == embeddedTemplates().end() || is_contained(found, &*file))
      continue;
    found.push_back(&*file);
    collectTemplates(file->text, found);
  }
}

KernelCache::Key kernelKey(const Nvrtc &nvrtc, const KernelProgram &program, StringRef arch) {
  std::string everything;
  auto add = [&](StringRef text) {
    everything += std::to_string(text.size()) + ":";
    everything += text;
  };
  for (StringRef part :
       {StringRef(nvrtc.fingerprint()), arch, StringRef(program.name), program.source})
    add(part);
  std::vector<const EmbeddedFile *> templates;
  collectTemplates(program.source, templates);
  for (const EmbeddedFile *file : templates) {
    add(file->name);
    add(file->text);
  }
  return KernelCache::keyOf(everything);
}

Expected<std::vector<KernelImage>> buildKernels(const Nvrtc &nvrtc,
                                                ArrayRef<KernelProgram> programs,
                                                const KernelBuildOptions &options,
                                                KernelCache &cache) {
  std::vector<KernelImage> images;
  for (const std::string &arch : options.archs)
    for (auto [i, program] : enumerate(programs))
      if (program.archs.empty() || is_contained(program.archs, arch))
        images.push_back({i, arch, {}});
  const size_t count = images.size();
  std::vector<std::string> errors(count);

  // Programs that include more tend to take longer, and one that starts last is waited for.
  std::vector<size_t> weight, order;
  for (const KernelProgram &program : programs) {
    std::vector<const EmbeddedFile *> templates;
    collectTemplates(program.source, templates);
    size_t bytes = program.source.size();
    for (const EmbeddedFile *file : templates)
      bytes += file->text.size();
    weight.push_back(bytes);
  }
  for (size_t i = 0; i < count; ++i)
    order.push_back(i);
  stable_sort(order, [&](size_t a, size_t b) {
    return weight[images[a].program] > weight[images[b].program];
  });

  std::atomic<size_t> next = 0, done = 0;
  std::atomic<bool> failed = false;
  std::mutex mutex;
  auto work = [&] {
    for (size_t turn; !failed && (turn = next++) < count;) {
      size_t i = order[turn];
      const KernelProgram &program = programs[images[i].program];
      const std::string &arch = images[i].arch;
      KernelCache::Key key = kernelKey(nvrtc, program, arch);
      if (auto cached = cache.find(key)) {
        images[i].bytes = std::move(*cached);
      } else if (auto image = nvrtc.compile(program.source, program.name, arch)) {
        images[i].bytes = std::move(*image);
        cache.store(key, images[i].bytes);
      } else {
        errors[i] = toString(image.takeError());
        failed = true;
      }
      if (options.progress) {
        std::lock_guard lock(mutex);
        options.progress(++done, count);
      }
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min<size_t>(options.threads, count); ++i)
    threads.emplace_back(work);
  work();
  for (std::thread &t : threads)
    t.join();
  if (cache.misses() > 0)
    cache.trim();
  for (const std::string &error : errors)
    if (!error.empty())
      return makeError(ExitCode::KernelCompilation, error);
  return images;
}

} // namespace gpt2c
