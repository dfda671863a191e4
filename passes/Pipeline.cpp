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
       {"recognise-linear", "simplify", "recognise-norm", "recognise-gelu", "simplify",
        "recognise-attention", "simplify", "cse"}},
      {"cached",
       "@forward, @prefill and @decode over one KV state",
       {"kv-transform", "simplify", "cse"}},
      {"fused", "one op for each launch", {"fuse-kv", "fuse-epilogues", "cse"}},
      {"quantised",
       "int8 where it was asked for",
       {"smooth-norms", "insert-quantize", "quantize-kv", "cse", "fuse-quantize", "cse"}},
      {"lowered", "in the precision of the plan", {"lower-precision", "cse"}},
  };
  return stages;
}

llvm::Error checkOptions(const PipelineOptions &options) {
  for (llvm::StringRef name : options.disabled)
    if (!findPass(name))
      return makeError(ExitCode::Usage, "there is no pass '" + name + "'; see --list-passes");
  if (!options.compileTo.empty() &&
      llvm::none_of(pipeline(), [&](const Stage &s) { return s.name == options.compileTo; }))
    return makeError(ExitCode::Usage,
                     "there is no stage '" + options.compileTo + "'; see --list-passes");
  return llvm::Error::success();
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
      if (!llvm::is_contained(options.disabled, name))
        if (llvm::Error e = runPass(*findPass(name), ctx, options))
          return e;
    if (stage.name == options.compileTo)
      return llvm::Error::success();
  }
  return llvm::Error::success();
}

} // namespace gpt2c
