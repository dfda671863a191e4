#include "codegen/KernelWriter.h"

using namespace llvm;

namespace gpt2c {

KernelSource layerNorm(StringRef name, const LayerNormConfig &c) {
  KernelWriter w(name, "templates/norm/layer_norm.cuh");
  w.type("X", c.x);
  w.type("Y", c.y);
  w.type("P", c.p);
  w.constant("D", c.d);
  w.constant("Threads", c.threads);
  w.constant("Rows", c.rows);
  w.flag("Rms", c.rms);
  w.flag("Residual", c.residual);
  w.constPointer(c.x, "x");
  w.constPointer(c.x, "residual");
  w.constPointer(c.p, "gain");
  w.constPointer(c.p, "shift");
  w.pointer(c.y, "y");
  const bool perRow = c.y == Scalar::I8 && c.given == Given::None;
  if (perRow)
    w.param("float *", "yScale");
  w.pointer(c.x, "sum");
  w.param("float", "epsilon");
  w.param("int", "rows");
  const std::string given = w.given(c.given);
  return w.finish(c.threads * c.rows, 0, "",
                  "tile::layerNorm<" + w.config() + ">(x, residual, gain, shift, y, " +
                      (perRow ? "yScale" : "nullptr") + ", sum, epsilon, rows, blockIdx.x, " +
                      given + ");");
}

KernelSource quantize(StringRef name, const QuantizeConfig &c) {
  KernelWriter w(name, "templates/quantize/quantize.cuh");
  w.type("X", c.x);
  w.constant("D", c.d);
  w.constant("Warps", c.warps);
  w.flag("Static", c.given);
  w.constPointer(c.x, "x");
  w.pointer(Scalar::I8, "q");
  w.param("float *", "scale");
  w.param("int", "groups");
  return w.finish(32 * c.warps, 0, "",
                  "tile::quantize<" + w.config() + ">(x, q, scale, groups, blockIdx.x);");
}

KernelSource dequantize(StringRef name, const DequantizeConfig &c) {
  KernelWriter w(name, "templates/quantize/quantize.cuh");
  w.type("Y", c.y);
  w.constant("D", c.d);
  w.constant("Threads", c.threads);
  w.flag("One", c.one);
  w.constPointer(Scalar::I8, "q");
  w.param("const float *", "scale");
  w.pointer(c.y, "y");
  w.param("int", "count");
  return w.finish(c.threads, 0,
                  "vectorWidth(" + Twine(c.d) + ", 16) == " + Twine(dequantizedElements(c)),
                  "tile::dequantize<" + w.config() + ">(q, scale, y, count, blockIdx.x);");
}

KernelSource embedding(StringRef name, const EmbeddingConfig &c) {
  KernelWriter w(name, "templates/embed/embedding.cuh");
  w.type("W", c.w);
  w.type("P", c.p);
  w.type("Y", c.y);
  w.constant("D", c.d);
  w.constant("Threads", c.threads);
  w.flag("Position", c.position);
  w.constant("Groups", c.groups);
  w.constant("Parts", c.parts);
  w.params("const int *", {"ids", "positions", "past"});
  w.param("const float *", "wteScale");
  w.constPointer(c.w, "wte");
  w.constPointer(c.p, "wpe");
  w.pointer(c.y, "y");
  w.param("float2 *", "statistics");
  w.params("int", {"seq", "positionCount"});
  return w.finish(
      c.threads, 0, "",
      "tile::embedding<" + w.config() +
          ">(ids, positions, past, wteScale, wte, wpe, y, statistics, seq, positionCount, "
          "blockIdx.x, gridDim.x);");
}

KernelSource gatherLast(StringRef name, const GatherLastConfig &c) {
  KernelWriter w(name, "templates/tokens/token_ops.cuh");
  w.type("X", c.x);
  w.constant("D", c.d);
  w.constant("Threads", c.threads);
  w.constPointer(c.x, "x");
  w.param("const int *", "length");
  w.pointer(c.x, "y");
  w.param("int", "seq");
  return w.finish(c.threads, 0, "",
                  "tile::gatherLast<" + w.config() + ">(x, length, y, seq, blockIdx.x);");
}

KernelSource argmax(StringRef name, const ArgmaxConfig &c) {
  KernelWriter w(name, "templates/tokens/token_ops.cuh");
  w.type("X", c.x);
  w.constant("Threads", c.threads);
  w.constPointer(c.x, "logits");
  w.param("int *", "next");
  w.param("u64 *", "best");
  w.param("unsigned *", "arrived");
  w.param("int", "n");
  return w.finish(c.threads, 0, "",
                  "tile::argmax<" + w.config() +
                      ">(logits, next, best, arrived, n, blockIdx.x, gridDim.x, blockIdx.y);");
}

KernelSource argmaxParts(StringRef name) {
  constexpr unsigned threads = 128;
  KernelWriter w(name, "templates/tokens/token_ops.cuh");
  w.constant("Threads", threads);
  w.param("const u64 *", "best");
  w.param("int *", "next");
  w.param("int", "parts");
  return w.finish(threads, 0, "",
                  "tile::argmaxParts<" + w.config() + ">(best, next, parts, blockIdx.x);");
}

KernelSource advance(StringRef name) {
  KernelWriter w(name, "templates/tokens/token_ops.cuh");
  w.param("const int *", "next");
  w.params("int *", {"ids", "past", "tokens", "step"});
  w.params("int", {"batch", "capacity"});
  return w.finish(128, 0, "", "tile::advance(next, ids, past, tokens, step, batch, capacity);");
}

std::string moduleSource(ArrayRef<KernelSource> kernels) {
  std::vector<std::string> headers;
  for (const KernelSource &kernel : kernels)
    for (const std::string &header : kernel.headers)
      if (!is_contained(headers, header))
        headers.push_back(header);
  std::string text;
  for (const std::string &header : headers)
    text += "#include \"" + header + "\"\n";
  text += "\nusing namespace gpt2c;\n";
  for (const KernelSource &kernel : kernels)
    text += "\n" + kernel.text;
  return text;
}

} // namespace gpt2c
