// The kernel cache: what is found, what is not, what goes; and that images do not depend on it.
#include "codegen/KernelBuild.h"

#include "ir/Error.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <gtest/gtest.h>

#include <sys/time.h>

using namespace gpt2c;
namespace fs = llvm::sys::fs;

namespace {

class Folder : public testing::Test {
protected:
  void SetUp() override { ASSERT_FALSE(fs::createUniqueDirectory("kernel-cache", path_)); }
  void TearDown() override { fs::remove_directories(path_); }
  std::string path() const { return std::string(path_); }
  std::vector<std::string> files() const {
    std::vector<std::string> out;
    std::error_code ec;
    for (fs::directory_iterator it(path_, ec), end; !ec && it != end; it.increment(ec))
      out.push_back(it->path());
    return out;
  }

private:
  llvm::SmallString<128> path_;
};

using KernelCacheTest = Folder;
using KernelBuildTest = Folder;

const std::vector<char> image(300, 'x');

TEST_F(KernelCacheTest, FindsWhatWasStored) {
  KernelCache cache(path() + "/made/when/needed");
  KernelCache::Key key = KernelCache::keyOf("a");
  EXPECT_FALSE(cache.find(key));
  cache.store(key, image);
  EXPECT_EQ(cache.find(key), image);
  EXPECT_FALSE(cache.find(KernelCache::keyOf("b")));
  EXPECT_EQ(cache.hits(), 1u);
  EXPECT_EQ(cache.misses(), 2u);
  EXPECT_EQ(cache.damaged(), 0u);
}

TEST_F(KernelCacheTest, WithoutAFolderKeepsNothing) {
  KernelCache cache;
  cache.store(KernelCache::keyOf("a"), image);
  EXPECT_FALSE(cache.find(KernelCache::keyOf("a")));
  EXPECT_FALSE(cache.failedToStore());
}

TEST_F(KernelCacheTest, DamagedEntriesAreMisses) {
  KernelCache cache(path());
  KernelCache::Key key = KernelCache::keyOf("a");
  cache.store(key, image);
  ASSERT_EQ(files().size(), 1u);
  const std::string file = files()[0];
  unsigned damaged = 0;
  // Every byte of the header and one of the image flipped, every length cut.
  for (size_t at = 0; at < 48; ++at) {
    cache.store(key, image);
    FILE *f = fopen(file.c_str(), "r+b");
    fseek(f, at, SEEK_SET);
    int c = fgetc(f);
    fseek(f, at, SEEK_SET);
    fputc(c ^ 0x10, f);
    fclose(f);
    EXPECT_FALSE(cache.find(key)) << "byte " << at;
    EXPECT_EQ(cache.damaged(), ++damaged);
  }
  for (size_t size : {0, 7, 39, 40, 339}) {
    cache.store(key, image);
    ASSERT_EQ(truncate(file.c_str(), size), 0);
    EXPECT_FALSE(cache.find(key)) << size << " bytes";
    EXPECT_EQ(cache.damaged(), ++damaged);
  }
  // Another entry under this name.
  cache.store(KernelCache::keyOf("b"), image);
  for (const std::string &other : files())
    if (other != file) {
      ASSERT_FALSE(fs::rename(other, file));
    }
  EXPECT_FALSE(cache.find(key));
  cache.store(key, image);
  EXPECT_EQ(cache.find(key), image);
}

TEST_F(KernelCacheTest, TrimRemovesWhatWasUsedLongestAgo) {
  KernelCache cache(path(), 3 * 340);
  for (char c = 'a'; c < 'f'; ++c) {
    KernelCache::Key key = KernelCache::keyOf(std::string(1, c));
    std::vector<std::string> before = files();
    cache.store(key, image);
    for (const std::string &file : files())
      if (std::find(before.begin(), before.end(), file) == before.end()) {
        timeval times[2] = {{1000 + c, 0}, {1000 + c, 0}};
        utimes(file.c_str(), times);
      }
  }
  EXPECT_TRUE(cache.find(KernelCache::keyOf("a"))); // used just now
  std::string stranger = path() + "/stranger.txt";
  fclose(fopen(stranger.c_str(), "w"));
  cache.trim();
  EXPECT_EQ(files().size(), 4u);
  EXPECT_TRUE(fs::exists(stranger));
  for (const char *kept : {"a", "d", "e"})
    EXPECT_TRUE(cache.find(KernelCache::keyOf(kept))) << kept;
}

TEST_F(KernelBuildTest, ImagesDependOnNeitherThreadsNorCache) {
  auto nvrtc = Nvrtc::load();
  if (!nvrtc) {
    llvm::consumeError(nvrtc.takeError());
    GTEST_SKIP() << "no NVRTC";
  }
  std::string sources[] = {
      "#include \"templates/tokens/token_ops.cuh\"\nextern \"C\" __global__ void a() {}",
      "extern \"C\" __global__ void b(int *p) { *p = 1; }"};
  std::vector<KernelProgram> programs = {{"a.cu", sources[0]}, {"b.cu", sources[1]}};
  KernelBuildOptions options{{"sm_80", "compute_80"}, 1, nullptr};
  KernelCache none, cache(path());
  auto first = buildKernels(**nvrtc, programs, options, none);
  ASSERT_TRUE(bool(first)) << toString(first.takeError());
  ASSERT_EQ(first->size(), 4u);
  EXPECT_EQ((*first)[0].bytes[1], 'E');
  EXPECT_EQ((*first)[3].bytes.back(), '\0');
  options.threads = 3;
  size_t reported = 0;
  options.progress = [&](size_t done, size_t all) { reported += done <= all && all == 4; };
  for (int turn = 0; turn < 2; ++turn) {
    auto again = buildKernels(**nvrtc, programs, options, cache);
    ASSERT_TRUE(bool(again)) << toString(again.takeError());
    for (auto [a, b] : llvm::zip_equal(*first, *again))
      EXPECT_TRUE(a.program == b.program && a.arch == b.arch && a.bytes == b.bytes);
  }
  EXPECT_EQ(cache.misses(), 4u);
  EXPECT_EQ(cache.hits(), 4u);
  EXPECT_EQ(reported, 8u);
}

TEST_F(KernelBuildTest, KeysTellSourcesNamesAndArchitecturesApart) {
  auto nvrtc = Nvrtc::load();
  if (!nvrtc) {
    llvm::consumeError(nvrtc.takeError());
    GTEST_SKIP() << "no NVRTC";
  }
  KernelProgram program{"a.cu", "// a"};
  KernelCache::Key key = kernelKey(**nvrtc, program, "sm_80");
  EXPECT_EQ(key, kernelKey(**nvrtc, program, "sm_80"));
  EXPECT_NE(key, kernelKey(**nvrtc, program, "sm_90a"));
  EXPECT_NE(key, kernelKey(**nvrtc, {"b.cu", "// a"}, "sm_80"));
  EXPECT_NE(key, kernelKey(**nvrtc, {"a.cu", "// b"}, "sm_80"));
}

TEST_F(KernelBuildTest, AFailureHasTheLogAndIsNotKept) {
  auto nvrtc = Nvrtc::load();
  if (!nvrtc) {
    llvm::consumeError(nvrtc.takeError());
    GTEST_SKIP() << "no NVRTC";
  }
  KernelCache cache(path());
  auto images =
      buildKernels(**nvrtc, {{"broken.cu", "extern \"C\" __global__ void k() { missing(); }"}},
                   {{"sm_80"}, 2, nullptr}, cache);
  ASSERT_FALSE(bool(images));
  std::string text;
  llvm::raw_string_ostream os(text);
  EXPECT_EQ(printError(images.takeError(), os), ExitCode::KernelCompilation);
  EXPECT_NE(text.find("broken.cu(1)"), std::string::npos) << text;
  EXPECT_TRUE(files().empty());
}

} // namespace
