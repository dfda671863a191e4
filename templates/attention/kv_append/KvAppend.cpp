#include "templates/attention/kv_append/KvAppend.h"

#include "codegen/KernelWriter.h"

namespace gpt2c {

KernelSource kvAppend(llvm::StringRef name, const KvAppendConfig &c) {
  KernelWriter w(name, "templates/attention/kv_append/kv_append.cuh", "tile::kvAppend");
  w.type("X", c.x);
  w.type("Kv", c.kv);
  w.constant("HeadDim", c.headDim);
  w.constant("Heads", c.heads);
  w.constant("KvHeads", c.kvHeads ? c.kvHeads : c.heads);
  w.constant("Threads", c.threads);
  w.in("qkv", c.x);
  w.out("kv", c.kv);
  w.in("past", Scalar::I32);
  for (const char *name : {"layer", "batchMax", "context", "seq"})
    w.i32(name);
  w.pass("blockIdx.x");
  return w.finish(c.threads);
}

KernelSource kvAppendPages(llvm::StringRef name, const KvAppendPagesConfig &c) {
  KernelWriter w(name, "templates/attention/kv_append/kv_append_pages.cuh", "tile::kvAppendPages");
  w.type("X", c.x);
  w.type("Kv", c.kv);
  w.constant("HeadDim", c.headDim);
  w.constant("Heads", c.heads);
  w.constant("KvHeads", c.kvHeads);
  w.constant("PageTokens", c.pageTokens);
  w.constant("Threads", c.threads);
  w.in("qkv", c.x);
  w.out("kv", c.kv);
  w.in("pieces", Scalar::I32);
  w.in("tables", Scalar::I32);
  for (const char *name : {"layer", "layers", "tableStride"})
    w.i32(name);
  w.pass("blockIdx.x, blockIdx.y");
  return w.finish(c.threads);
}

} // namespace gpt2c
