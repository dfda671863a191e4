#include "passes/Pipeline.h"

#include "ir/Error.h"
#include "ir/Verifier.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

llvm::ArrayRef<Stage> pipeline() {
  static const Stage stages[] = {
      {"import", "the exported graph, as imported", {}},
      {"canonical",
       "shapes symbolic, constants folded, no redundant copies",
       {"resolve-shapes", "fold-constants", "simplify", "resolve-shapes", "cse"}},
      {"recognised",
       "linear, layer_norm, gelu and attention instead of the chains that spell them",
       {"recognise-linear", "simplify", "recognise-norm", "recognise-gelu", "simplify", "recognise-attention",
        "simplify", "cse"}},
      {"cached", "@forward, @prefill and @decode over one KV state", {"kv-transform", "simplify", "cse"}},
      {"fused", "one op for each launch", {"fuse-kv", "fuse-epilogues", "cse"}},
      {"lowered", "in the precision of the plan", {"lower-precision", "cse"}},
  };
  return stages;
}

llvm::Error runPass(const Pass &pass, PassContext &ctx, const PipelineOptions &options) {
  ctx.setPass(pass.name);
  auto inPass = [&](llvm::Error e) { return inContext("in pass " + pass.name, std::move(e)); };
  if (llvm::Error e = pass.run(ctx))
    return inPass(std::move(e));
  if (options.verifyEach)
    if (llvm::Error e = verify(ctx.module()))
      return inPass(std::move(e));
  if (options.afterPass)
    options.afterPass(pass, ctx.module());
  return llvm::Error::success();
}

llvm::Error runPipeline(PassContext &ctx, const PipelineOptions &options) {
  for (const Stage &stage : pipeline()) {
    for (llvm::StringRef name : stage.passes)
      if (llvm::Error e = runPass(*findPass(name), ctx, options))
        return e;
    if (stage.name == options.compileTo)
      return llvm::Error::success();
  }
  return llvm::Error::success();
}

} // namespace gpt2c
