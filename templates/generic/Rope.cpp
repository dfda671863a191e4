// The lowering of rotary embeddings.
#include "templates/generic/GenericLowerings.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

/// Whether heads are normed: with parameters scale, f32[heads, head_dim], and epsilon then.
static bool addNorm(KernelCall &call, const Op &op) {
  Value *scale = op.operand(ops::Rope::Scale);
  if (scale) {
    call.in("scale", scale);
    call.real("epsilon", op.floatAttr("epsilon"));
  }
  return scale;
}

/// Whole heads, and tables in floats: a thread turns a unit of 16 bytes and what it is paired with.
static llvm::Error lowerWholeHeads(StepBuilder &b, Op &op, int64_t heads, int64_t turned,
                                   int64_t unit) {
  using enum ops::Rope::Operand;
  Value *x = op.operand(X), *positions = op.operand(Positions), *cos = op.operand(Cos),
        *y = op.result();
  constexpr unsigned threads = 256;
  const int64_t size = op.intAttr("head_dim");
  const Dim rows = x->type.shape[0] * x->type.shape[1];
  const bool first = positions->type.rank() == 1; // of each sequence's first token
  KernelCall call(b, op, "templates/generic/rope.cuh");
  call.type("X", cudaType(x->type.dtype));
  call.type("Table", cudaType(cos->type.dtype));
  call.type("Position", cudaType(positions->type.dtype));
  call.constant("Heads", heads);
  call.constant("Turned", turned);
  call.constant("Size", size);
  call.constant("Unit", unit);
  call.flag("Interleaved", op.boolAttr("interleaved"));
  call.flag("ToHalves", op.boolAttr("to_halves"));
  call.flag("Normed", op.operand(Scale));
  call.flag("OfFirst", first);
  call.flag("Shared", !first && positions->type.shape[0] == Dim(1));
  call.out("y", y);
  call.in("x", x);
  call.in("positions", positions);
  call.in("cosines", cos);
  call.in("sines", op.operand(Sin));
  const std::string norm = addNorm(call, op) ? "scale, epsilon" : "nullptr, 0.0f";
  call.integer("places", cos->type.shape[0]);
  call.integer("rows", rows);
  call.integer("seq", x->type.shape[1]);
  const Dim units = rows * Dim(heads * size / 2 / unit);
  return call.launch(op, threads, ceilDivExpr(b.expr(units), threads),
                     "  tile::rope<" + call.config() + ">(y, x, positions, cosines, sines, " +
                         norm + ", places, rows, seq, blockIdx.x, gridDim.x);\n");
}

/// Where heads are not units, a thread turns a pair, or copies an element that stays: a row of the
/// loop is one head.
llvm::Error lowerRope(StepBuilder &b, Op &op) {
  using enum ops::Rope::Operand;
  Value *x = op.operand(X), *positions = op.operand(Positions), *cos = op.operand(Cos),
        *y = op.result();
  const Shape &shape = x->type.shape;
  auto width = shape[2].constant(), pairs = cos->type.shape[1].constant();
  if (!width || !pairs)
    return noKernel(op, "the width of its heads is not constant");
  const Value *scale = op.operand(Scale);
  if (scale && scale->type.dtype != DType::F32)
    return noKernel(op, "gains of heads are in f32");
  int64_t d = op.intAttr("head_dim"), all = *width / d;
  int64_t turned = op.intAttr("heads") ? op.intAttr("heads") : all;
  const int64_t unit = 16 / int64_t(byteSize(x->type.dtype));
  auto isFloat = [](DType t) { return t == DType::F32 || t == DType::F16 || t == DType::BF16; };
  if (isFloat(x->type.dtype) && isFloat(cos->type.dtype) && 2 * *pairs == d && d % (2 * unit) == 0)
    return lowerWholeHeads(b, op, all, turned, unit);
  KernelCall call(b, op, "templates/generic/map.cuh");
  call.out("y", y);
  call.in("x", x);
  call.in("positions", positions);
  call.in("cosines", cos);
  call.in("sines", op.operand(Sin));
  call.integer("places", cos->type.shape[0]);
  call.integer("pairs", Dim(*pairs));
  call.integer("turned", Dim(turned));
  const bool normed = addNorm(call, op);
  if (normed)
    call.integer("size", Dim(d));
  Shape sizes{shape[0], shape[1], Dim(all), Dim(d - *pairs)};
  Shape rows{shape[1] * Dim(*width), Dim(*width), Dim(d), Dim(0)};
  const bool first = positions->type.rank() == 1; // of each sequence's first token
  const bool shared = !first && positions->type.shape[0] == Dim(1);
  Shape places{shared ? Dim(0) : first ? Dim(1) : shape[1], Dim(first ? 0 : 1), Dim(0), Dim(0)};
  std::string pair = op.boolAttr("interleaved") ? "const i64 i = 2 * k, j = i + 1;\n"
                                                : "const i64 i = k, j = pairs + k;\n";
  // The element of a head that turns, normed by the thread itself: its other parts come out of L1.
  const std::string norm =
      normed ? "        const float *const gain = scale + at.coordinate[2] * size;\n"
               "        float squares = 0.0f;\n"
               "        for (i64 e = 0; e < size; e++)\n"
               "          squares += (float)load(from + e) * (float)load(from + e);\n"
               "        const float factor = rsqrtf(squares / (float)size + epsilon);\n"
               "        auto element = [&](i64 e) { return load(from + e) * factor * gain[e]; };\n"
             : "        auto element = [&](i64 e) { return load(from + e); };\n";
  const std::string low = op.boolAttr("to_halves") ? "k" : "i",
                    high = op.boolAttr("to_halves") ? "pairs + k" : "j";
  return launchMap(
      call, b, op, {sizes, {rows, rows, places}},
      "        const i64 k = at.coordinate[3];\n"
      "        auto *const to = y + at.offset[0];\n"
      "        const auto *const from = x + at.offset[1];\n"
      "        " +
          pair +
          "        if (at.coordinate[2] >= turned) {\n"
          "          if (k < pairs)\n"
          "            to[i] = from[i];\n"
          "          to[k < pairs ? j : pairs + k] = from[k < pairs ? j : pairs + k];\n"
          "          return;\n"
          "        }\n" +
          norm +
          "        if (k >= pairs) {\n"
          "          store(to + pairs + k, element(pairs + k));\n"
          "          return;\n"
          "        }\n"
          "        const i64 position = (i64)load(positions + at.offset[2])" +
          (first ? " + at.coordinate[1];\n" : ";\n") +
          "        i64 place = position < 0 ? -position : position;\n"
          "        place = place < places ? place : places - 1;\n"
          "        const auto c = load(cosines + place * pairs + k);\n"
          "        auto s = load(sines + place * pairs + k);\n"
          "        s = position < 0 ? -s : s;\n"
          "        const auto a = element(i), b = element(j);\n" +
          "        store(to + " + low + ", a * c - b * s);\n        store(to + " + high +
          ", a * s + b * c);\n",
      true);
}

} // namespace gpt2c
