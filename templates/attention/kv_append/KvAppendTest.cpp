// kv_append: rows of the state are those of the call, rounded.
#include "templates/attention/kv_append/KvAppend.h"

#include "tests/suite/kernels/AttentionCases.h"
#include "tests/suite/kernels/StateBytes.h"

namespace gpt2c::kernels {

namespace kv_append_test {

void append(Suite &suite, KvAppendConfig c) {
  int id = suite.kernel("kv_append", [&](llvm::StringRef name) { return kvAppend(name, c); });
  suite.test(
      "kv_append/head_dim " + std::to_string(c.headDim) +
          (c.kvHeads ? " shared by " + std::to_string(c.heads) : "") + typeLabel(c.x) +
          typeLabel(c.kv),
      [=](Run &run) {
        const int batch = 3, seq = 5, context = 11, batchMax = 4;
        const AttentionConfig shape{.headDim = c.headDim, .heads = c.heads, .kvHeads = c.kvHeads};
        const int kept = stateHeads(shape), row = (c.heads + 2 * kept) * c.headDim;
        std::vector<int> past = {0, 4, 9}; // the last one runs past the context
        Tensor qkv = run.input(run.normal((size_t)batch * seq * row), c.x);
        Tensor kv =
            run.input(run.normal((size_t)2 * 2 * batchMax * kept * context * c.headDim), c.kv);
        Tensor pastTensor = run.integerInput(past);
        std::vector<double> want = kv.values;
        for (int b = 0; b < batch; ++b)
          for (int t = 0; t < seq && past[b] + t < context; ++t)
            for (int part = 0; part < 2; ++part)
              for (int h = 0; h < kept; ++h)
                for (int d = 0; d < c.headDim; ++d)
                  want[kvIndex(shape, batchMax, context, part, b, h, past[b] + t) + d] =
                      rounded(qkv.values[(size_t)(b * seq + t) * row +
                                         (c.heads + part * kept + h) * c.headDim + d],
                              c.kv);
        run.launch(id, blocks(int64_t(batch) * seq),
                   {{"qkv", &qkv},
                    {"kv", &kv},
                    {"past", &pastTensor},
                    {"layer", 1},
                    {"batchMax", batchMax},
                    {"context", context},
                    {"seq", seq}});
        run.expectNear(kv, want, 0, {});
      });
}

/// Rows become bytes with a scale each.
void appendBytes(Suite &suite, KvAppendConfig c) {
  int id = suite.kernel("kv_append", [&](llvm::StringRef name) { return kvAppend(name, c); });
  suite.test("kv_append/bytes head_dim " + std::to_string(c.headDim) + typeLabel(c.x) +
                 (c.kv == Scalar::I8 ? " int8" : " fp8"),
             [=](Run &run) {
               const int batch = 3, seq = 5, context = 12, batchMax = 4;
               const AttentionConfig shape{.headDim = c.headDim, .heads = c.heads};
               const int row = 3 * c.heads * c.headDim;
               const std::vector<int> past = {0, 4, 9}; // the last one runs past the context
               Tensor qkv = run.input(run.normal((size_t)batch * seq * row), c.x);
               std::vector<double> held =
                   run.normal((size_t)2 * 2 * batchMax * c.heads * context * c.headDim);
               StateBytes state(c.kv, context, c.headDim, held);
               Tensor kv = run.integerInput(state.words());
               Tensor pastTensor = run.integerInput(past);
               for (int b = 0; b < batch; ++b)
                 for (int t = 0; t < seq && past[b] + t < context; ++t)
                   for (int part = 0; part < 2; ++part)
                     for (int h = 0; h < c.heads; ++h)
                       state.set(kvIndex(shape, batchMax, context, part, b, h, past[b] + t) /
                                     c.headDim,
                                 &qkv.values[(size_t)(b * seq + t) * row +
                                             ((part + 1) * c.heads + h) * c.headDim]);
               run.launch(id, blocks(int64_t(batch) * seq),
                          {{"qkv", &qkv},
                           {"kv", &kv},
                           {"past", &pastTensor},
                           {"layer", 1},
                           {"batchMax", batchMax},
                           {"context", context},
                           {"seq", seq}});
               if (!run.isDry())
                 run.expectEqual(run.readIntegers(kv), state.words(), "the state");
             });
}

void addCases(Suite &suite) {
  for (Scalar bytes : {Scalar::I8, Scalar::F8E4M3})
    for (Scalar t : {Scalar::F16, Scalar::BF16, Scalar::F32})
      for (int headDim : {4, 64, 200})
        appendBytes(suite, {t, bytes, headDim, 3, 64});

  const Scalar f16 = Scalar::F16, f32 = Scalar::F32;
  for (int headDim : {1, 3, 8, 64})
    for (Scalar t : {f16, f32})
      append(suite, {t, headDim == 8 ? f16 : t, headDim, 3, 64});
  append(suite, {f16, f16, 64, 6, 64, 2});
  append(suite, {Scalar::BF16, Scalar::BF16, 64, 6, 64, 2});
  append(suite, {Scalar::BF16, Scalar::BF16, 3, 3, 64});
}

const Cases cases(addCases);
} // namespace kv_append_test

} // namespace gpt2c::kernels
