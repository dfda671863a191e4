#include "codegen/KernelSource.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace gpt2c {

namespace {
const char *cudaType(Scalar s) {
  switch (s) {
  case Scalar::F32:
    return "float";
  case Scalar::F16:
    return "__half";
  case Scalar::I8:
    return "signed char";
  case Scalar::I32:
    return "int";
  }
  return "";
}
const char *cudaBool(bool b) { return b ? "true" : "false"; }

std::string floatLiteral(float value) {
  std::string text;
  raw_string_ostream(text) << format("%af", (double)value);
  return text;
}

/// Writes one instance: a config struct named after the kernel, then the entry point.
class Writer {
public:
  Writer(StringRef name, StringRef header) {
    kernel_.name = name.str();
    kernel_.headers.push_back(header.str());
  }

  void type(StringRef name, Scalar s) {
    members_ += ("  using " + name + " = " + cudaType(s) + ";\n").str();
  }
  void constant(StringRef name, int value) {
    members_ += "  static constexpr int " + name.str() + " = " + std::to_string(value) + ";\n";
  }
  void flag(StringRef name, bool value) {
    members_ += "  static constexpr bool " + name.str() + " = " + cudaBool(value) + ";\n";
  }
  void norm(FusedNorm norm) {
    const char *names[] = {"None", "Layer", "Rms"};
    member(Twine("static constexpr NormKind Norm = NormKind::") + names[(int)norm] + ";");
  }
  /// That many blocks along x and z are one thread block cluster where there is such a thing.
  void cluster(int x, int z) {
    before_ += "#if __CUDA_ARCH__ >= 900\n#define " + kernel_.name + "Cluster __cluster_dims__(" +
               std::to_string(x) + ", 1, " + std::to_string(z) + ")\n#else\n#define " +
               kernel_.name + "Cluster\n#endif\n";
    attribute_ = kernel_.name + "Cluster ";
  }
  void member(const Twine &line) { members_ += "  " + line.str() + "\n"; }

  /// A parameter of the entry point.
  void param(StringRef type, StringRef name) {
    kernel_.params.push_back(name.str());
    params_ +=
        (params_.empty() ? "" : ", ") + type.str() + (type.ends_with("*") ? "" : " ") + name.str();
  }
  void params(StringRef type, ArrayRef<const char *> names) {
    for (const char *name : names)
      param(type, name);
  }
  void pointer(Scalar s, StringRef name) { param(std::string(cudaType(s)) + " *", name); }
  void constPointer(Scalar s, StringRef name) {
    param(std::string("const ") + cudaType(s) + " *", name);
  }

  /// The struct <name>Epilogue and its parameters; returns the expression that makes one for rows
  /// of `n` elements.
  std::string epilogue(const Epilogue &stages, const std::string &n = "n") {
    kernel_.headers.push_back("epilogue.cuh");
    std::string fields, values, operands, loads, body, prefetches, staged;
    int count = 0, columns = 0;
    for (const EpilogueStage &stage : stages) {
      auto line = [&](const Twine &text) { body += "    epilogue::" + text.str() + ";\n"; };
      // The operand is applied by `function`; `from` says where a row and column have theirs.
      auto operand = [&](StringRef function, StringRef load, StringRef from) {
        const std::string e = "e" + std::to_string(count++);
        fields += "  const " + std::string(cudaType(stage.operand)) + " *" + e + ";\n";
        values += e + ", ";
        operands += "    float " + e + "[V];\n";
        loads += ("    " + load + "<V>(" + e + from + ", o." + e + ");\n").str();
        constPointer(stage.operand, e);
        line(function + "(v, o." + e + ")");
        if (from != " + col")
          return;
        prefetches += "    prefetch(" + e + " + col);\n";
        staged += "    " + e + " = gpt2c::stageColumns(" + e + ", shared[" +
                  std::to_string(columns++) + "], col0, count, thread, threads);\n";
      };
      auto column = [&](StringRef function) { operand(function, "loadFloats", " + col"); };
      auto matrix = [&](StringRef function) {
        operand(function, "loadFloats", " + row * n + col");
      };
      switch (stage.kind) {
      case EpilogueStage::AddBias:
        column("add");
        break;
      case EpilogueStage::AddMatrix:
        matrix("add");
        break;
      case EpilogueStage::MulMatrix:
        matrix("mul");
        break;
      case EpilogueStage::ScaleRow:
        operand("mul", "epilogue::loadOne", " + row");
        break;
      case EpilogueStage::ScaleColumn:
        column("mul");
        break;
      case EpilogueStage::ScaleAll:
        operand("mul", "epilogue::loadOne", "");
        break;
      case EpilogueStage::Scale:
        line("scale(v, " + floatLiteral(stage.value) + ")");
        break;
      case EpilogueStage::GeluTanh:
        line("geluTanh(v)");
        break;
      case EpilogueStage::GeluTanhHalf:
        line("geluTanhHalf(v)");
        break;
      case EpilogueStage::GeluErf:
        line("geluErf(v)");
        break;
      case EpilogueStage::Relu:
        line("relu(v)");
        break;
      case EpilogueStage::Silu:
        line("silu(v)");
        break;
      case EpilogueStage::Sigmoid:
        line("sigmoid(v)");
        break;
      case EpilogueStage::Tanh:
        line("tanh(v)");
        break;
      }
    }
    before_ += "struct " + kernel_.name + "Epilogue {\n" + fields +
               "  int n;\n"
               "  template <int V> struct Operands {\n" +
               operands +
               "  };\n"
               "  template <int V> __device__ __forceinline__ Operands<V> load(i64 row, i64 col) "
               "const {\n    Operands<V> o;\n" +
               loads +
               "    return o;\n  }\n"
               "  template <int V> __device__ __forceinline__ void apply(float (&v)[V], const "
               "Operands<V> &o) const {\n" +
               body +
               "  }\n  template <int V> __device__ __forceinline__ void operator()(float (&v)[V], "
               "i64 row, i64 col) const {\n    apply(v, load<V>(row, col));\n  }\n"
               "  __device__ __forceinline__ void prefetchColumn(i64 col) const {\n" +
               prefetches +
               "  }\n  static constexpr int columnOperands = " + std::to_string(columns) +
               ";\n  template <int W>\n  __device__ __forceinline__ void stageColumns(float "
               "(*shared)[W], int col0, int count, int thread, int threads) {\n" +
               staged + "  }\n};\n";
    return kernel_.name + "Epilogue{" + values + n + "}";
  }

  /// Ends the instance. `check` is a condition on the template's own constants, so that what the
  /// launch is told here and what the template computes cannot differ.
  /// `blocks` of the kernel are meant to share a multiprocessor: registers are limited to that.
  KernelSource finish(unsigned threads, unsigned sharedBytes, const Twine &check, const Twine &body,
                      unsigned blocks = 0) {
    kernel_.threads = threads;
    kernel_.sharedBytes = sharedBytes;
    std::string &t = kernel_.text;
    if (!members_.empty())
      t += "struct " + kernel_.name + "Config {\n" + members_ + "};\n";
    t += before_;
    std::string condition = check.str();
    if (!condition.empty())
      t += "static_assert(" + condition + ");\n";
    t += "extern \"C\" __global__ void " + attribute_ + "__launch_bounds__(" +
         std::to_string(threads) + (blocks > 0 ? ", " + std::to_string(blocks) : "") + ") " +
         kernel_.name + "(" + params_ + ") {\n";
    if (sharedBytes > 0)
      t += "  extern __shared__ uint4 dynamicShared[];\n";
    t += "  " + body.str() + "\n}\n";
    return std::move(kernel_);
  }

  std::string config() const { return kernel_.name + "Config"; }

private:
  KernelSource kernel_;
  std::string members_, before_, attribute_, params_;
};

void splitKParams(Writer &w, int splitK) {
  if (splitK <= 1)
    return;
  w.param("float *", "partial");
  w.param("unsigned *", "counters");
}
const char *splitKArguments(int splitK) {
  return splitK > 1 ? "partial, counters" : "nullptr, nullptr";
}

/// Scales of the groups of quantised operands and results.
void groupMembers(Writer &w, int xGroup, int yGroup) {
  w.constant("XGroup", xGroup);
  w.constant("YGroup", yGroup);
}
void groupParams(Writer &w, int xGroup, int yGroup) {
  if (xGroup > 0)
    w.param("const float *", "xScale");
  if (yGroup > 0)
    w.param("float *", "yScale");
}
std::string groupArguments(int xGroup, int yGroup) {
  return std::string(xGroup > 0 ? "xScale" : "nullptr") + (yGroup > 0 ? ", yScale" : ", nullptr");
}

void normParams(Writer &w, Scalar p) {
  w.constPointer(p, "gain");
  w.constPointer(p, "shift");
  w.param("float", "epsilon");
}
const char *normArguments(bool norm) {
  return norm ? "gain, shift, epsilon" : "nullptr, nullptr, 0.0f";
}

void attentionParams(Writer &w, const AttentionConfig &c, bool decode) {
  w.constPointer(c.x, "qkv");
  w.pointer(c.kv, "kv");
  w.pointer(c.quantise ? Scalar::I8 : c.x, "out");
  if (c.quantise)
    w.param("float *", "outScale");
  w.params("const int *", {"past", "keyMask"});
  if (decode) {
    w.param("float *", "partial");
    w.param("unsigned *", "counters");
  }
  w.params("int", {"layer", "batchMax", "context", "seq", "maskStride"});
  w.param("float", "scale");
}

void attentionMembers(Writer &w, const AttentionConfig &c) {
  w.type("X", c.x);
  w.type("Y", c.quantise ? Scalar::I8 : c.x);
  w.type("Kv", c.kv);
  w.constant("HeadDim", c.headDim);
  w.constant("Heads", c.heads);
  w.flag("Append", c.append);
  w.flag("Causal", c.causal);
  w.flag("Mask", c.mask);
}
} // namespace

KernelSource linearMma(StringRef name, const LinearMmaConfig &c, const Epilogue &epilogue) {
  Writer w(name, "linear_mma.cuh");
  w.type("X", c.x);
  w.type("Y", c.y);
  w.constant("BM", c.bm);
  w.constant("BN", c.bn);
  w.constant("BK", c.bk);
  w.constant("WarpsM", c.warpsM);
  w.constant("WarpsN", c.warpsN);
  w.constant("Stages", c.stages);
  w.constant("SplitK", c.splitK);
  groupMembers(w, c.xGroup, c.yGroup);
  w.constPointer(c.x, "x");
  w.constPointer(c.x, "w");
  w.pointer(c.y, "y");
  w.params("int", {"m", "n", "k"});
  groupParams(w, c.xGroup, c.yGroup);
  splitKParams(w, c.splitK);
  std::string e = w.epilogue(epilogue);
  unsigned threads = 32 * c.warpsM * c.warpsN, width = scalarBytes(c.x);
  unsigned shared = c.stages * (c.bm + c.bn) * (c.bk * width + 16);
  std::string t = "LinearMma<" + w.config() + ">";
  return w.finish(threads, shared,
                  t + "::threads == " + Twine(threads) + " && " + t +
                      "::sharedBytes == " + Twine(shared),
                  "tile::linearMma<" + w.config() + ">(x, w, y, m, n, k, " +
                      groupArguments(c.xGroup, c.yGroup) + ", " + splitKArguments(c.splitK) +
                      ", blockIdx.x, blockIdx.y, blockIdx.z, (" + cudaType(c.x) +
                      " *)dynamicShared, " + e + ");");
}

KernelSource linearInt8(StringRef name, const LinearInt8Config &c, const Epilogue &epilogue) {
  Writer w(name, "linear_int8.cuh");
  w.type("Y", c.y);
  w.constant("BM", c.bm);
  w.constant("BN", c.bn);
  w.constant("Stages", c.stages);
  w.constant("SplitK", c.splitK);
  groupMembers(w, c.xGroup, c.yGroup);
  w.constPointer(Scalar::I8, "x");
  w.constPointer(Scalar::I8, "w");
  w.pointer(c.y, "y");
  w.params("int", {"m", "n", "k"});
  groupParams(w, c.xGroup, c.yGroup);
  splitKParams(w, c.splitK);
  std::string e = w.epilogue(epilogue);
  unsigned threads = c.bm / 64 * 128, shared = int8SharedBytes(c);
  std::string t = "LinearInt8<" + w.config() + ">";
  return w.finish(
      threads, shared,
      t + "::threads == " + Twine(threads) + " && " + t + "::sharedBytes == " + Twine(shared),
      "tile::linearInt8<" + w.config() + ">(x, w, y, m, n, k, " +
          groupArguments(c.xGroup, c.yGroup) + ", " + splitKArguments(c.splitK) +
          ", blockIdx.x, blockIdx.y, blockIdx.z, (signed char *)dynamicShared, " + e + ");",
      c.xGroup == 0             ? (c.bn <= 128 ? 2 : 0)
      : c.bm * c.bn <= 64 * 128 ? 3
                                : 0);
}

KernelSource linearWgmma(StringRef name, const LinearWgmmaConfig &c, const Epilogue &epilogue) {
  Writer w(name, "linear_wgmma.cuh");
  w.type("Y", c.y);
  w.constant("BM", c.bm);
  w.constant("BN", c.bn);
  w.constant("Stages", c.stages);
  w.constant("SplitK", c.splitK);
  w.constPointer(Scalar::F16, "x");
  w.constPointer(Scalar::F16, "w");
  w.pointer(c.y, "y");
  w.params("int", {"m", "n", "k"});
  splitKParams(w, c.splitK);
  std::string e = w.epilogue(epilogue);
  unsigned threads = c.bm / 64 * 128, shared = wgmmaSharedBytes(c);
  std::string t = "LinearWgmma<" + w.config() + ">";
  return w.finish(
      threads, shared,
      t + "::threads == " + Twine(threads) + " && " + t + "::sharedBytes == " + Twine(shared),
      "tile::linearWgmma<" + w.config() + ">(x, w, y, m, n, k, " + splitKArguments(c.splitK) +
          ", blockIdx.x, blockIdx.y, blockIdx.z, (__half *)dynamicShared, " + e + ");");
}

KernelSource linearTma(StringRef name, const LinearTmaConfig &c, const Epilogue &epilogue) {
  Writer w(name, c.persistent ? "linear_tma_persistent.cuh" : "linear_tma.cuh");
  w.type("Y", c.y);
  w.constant("N", c.n);
  w.constant("K", c.k);
  w.constant("BN", c.bn);
  w.constant("Stages", c.stages);
  if (!c.persistent) {
    w.constant("BM", c.bm);
    w.constant("SplitK", c.splitK);
  }
  if (c.splitK > 1)
    w.cluster(1, c.splitK);
  for (const char *map : {"xMap", "wMap"})
    w.param("const __grid_constant__ TensorMap", map);
  w.pointer(c.y, "y");
  w.param("int", "m");
  std::string e = w.epilogue(epilogue, std::to_string(c.n));
  std::string norm = "NoNorm{}", statistics = "NoStatistics{}";
  if (c.normParts > 0) {
    w.param("const float2 *", "xStatistics");
    w.param("const float *", "rowSums");
    w.param("float", "epsilon");
    norm = "FoldedNorm<" + std::to_string(c.normParts) + ", " + std::to_string(c.normWidth) +
           ">{xStatistics, rowSums, epsilon}";
  }
  if (c.statistics) {
    w.param("float2 *", "yStatistics");
    statistics = "RowStatistics{yStatistics}";
  }
  unsigned threads = c.persistent ? 384 : c.bm / 64 * 128 + 32, shared = tmaSharedBytes(c);
  std::string t = (c.persistent ? "LinearTmaPersistent<" : "LinearTma<") + w.config() + ">";
  return w.finish(
      threads, shared,
      t + "::threads == " + Twine(threads) + " && " + t + "::sharedBytes == " + Twine(shared),
      (c.persistent ? "tile::linearTmaPersistent<" : "tile::linearTma<") + w.config() +
          ">(xMap, wMap, y, m, " +
          (c.persistent ? "blockIdx.x, gridDim.x" : "blockIdx.x, blockIdx.y, blockIdx.z") +
          ", dynamicShared, " + e + ", " + norm + ", " + statistics + ");",
      c.blocks);
}

KernelSource linearInt8Tma(StringRef name, const LinearInt8TmaConfig &c, const Epilogue &epilogue) {
  Writer w(name, c.persistent ? "linear_int8_persistent.cuh" : "linear_int8_tma.cuh");
  w.type("Y", c.y);
  w.constant("BN", c.bn);
  w.constant("Stages", c.stages);
  w.flag("RowScale", c.rowScale);
  w.constant("YGroup", c.yGroup);
  if (!c.persistent) {
    w.constant("BM", c.bm);
    w.constant("SplitK", c.splitK);
    w.constant("XGroup", c.xGroup);
  }
  if (c.splitK > 1)
    w.cluster(1, c.splitK);
  for (const char *map : {"xMap", "wMap"})
    w.param("const __grid_constant__ TensorMap", map);
  w.pointer(c.y, "y");
  w.params("int", {"m", "n", "k"});
  const bool scales = c.rowScale || c.xGroup > 0;
  groupParams(w, scales, c.yGroup);
  std::string e = w.epilogue(epilogue);
  unsigned threads = c.persistent || c.bm == 128 ? 384 : 160, shared = int8TmaSharedBytes(c);
  std::string t = (c.persistent ? "LinearInt8Persistent<" : "LinearInt8Tma<") + w.config() + ">";
  return w.finish(
      threads, shared,
      t + "::threads == " + Twine(threads) + " && " + t + "::sharedBytes == " + Twine(shared),
      (c.persistent ? "tile::linearInt8Persistent<" : "tile::linearInt8Tma<") + w.config() +
          ">(xMap, wMap, y, m, n, k, " + groupArguments(scales, c.yGroup) + ", " +
          (c.persistent ? "blockIdx.x, gridDim.x" : "blockIdx.x, blockIdx.y, blockIdx.z") +
          ", dynamicShared, " + e + ");",
      c.blocks);
}

KernelSource linearSimt(StringRef name, const LinearSimtConfig &c, const Epilogue &epilogue) {
  Writer w(name, "linear_simt.cuh");
  w.type("X", c.x);
  w.type("W", c.w);
  w.type("Y", c.y);
  w.constant("BM", c.bm);
  w.constant("BN", c.bn);
  w.constant("BK", c.bk);
  w.constant("TM", c.tm);
  w.constant("TN", c.tn);
  w.constant("SplitK", c.splitK);
  w.constPointer(c.x, "x");
  w.constPointer(c.w, "w");
  w.pointer(c.y, "y");
  w.params("int", {"m", "n", "k"});
  splitKParams(w, c.splitK);
  std::string e = w.epilogue(epilogue);
  unsigned threads = c.bm / c.tm * (c.bn / c.tn);
  return w.finish(threads, 0, "LinearSimt<" + w.config() + ">::threads == " + Twine(threads),
                  "tile::linearSimt<" + w.config() + ">(x, w, y, m, n, k, " +
                      splitKArguments(c.splitK) + ", blockIdx.x, blockIdx.y, blockIdx.z, " + e +
                      ");");
}

KernelSource linearTf32(StringRef name, const LinearTf32Config &c, const Epilogue &epilogue) {
  Writer w(name, c.wgmma ? "linear_tf32_wgmma.cuh" : "linear_tf32.cuh");
  w.type("Y", c.y);
  w.constant("BM", c.bm);
  w.constant("BN", c.bn);
  if (!c.wgmma) {
    w.constant("WarpsM", c.warpsM);
    w.constant("WarpsN", c.warpsN);
  }
  w.constant("Stages", c.stages);
  w.constant("SplitK", c.splitK);
  if (c.splitK > 1)
    w.cluster(1, c.splitK);
  if (c.wgmma) {
    for (const char *map : {"xMap", "wMap"})
      w.param("const __grid_constant__ TensorMap", map);
  } else {
    w.constPointer(Scalar::F32, "x");
    w.constPointer(Scalar::F32, "w");
  }
  w.pointer(c.y, "y");
  w.params("int", {"m", "n", "k"});
  if (!c.wgmma)
    splitKParams(w, c.splitK);
  std::string e = w.epilogue(epilogue), config = w.config();
  unsigned threads = c.wgmma ? 2 * c.bm + 128 : 32 * c.warpsM * c.warpsN;
  unsigned shared = tf32SharedBytes(c);
  std::string t = (c.wgmma ? "LinearTf32Wgmma<" : "LinearTf32<") + config + ">";
  std::string call = c.wgmma ? "tile::linearTf32Wgmma<" + config + ">(xMap, wMap, y, m, n, k, "
                             : "tile::linearTf32<" + config + ">(x, w, y, m, n, k, " +
                                   splitKArguments(c.splitK) + ", ";
  return w.finish(threads, shared,
                  t + "::threads == " + Twine(threads) + " && " + t +
                      "::sharedBytes == " + Twine(shared),
                  call + "blockIdx.x, blockIdx.y, blockIdx.z, " +
                      (c.wgmma ? "dynamicShared, " : "(float *)dynamicShared, ") + e + ");",
                  c.blocks);
}

KernelSource linearRowDot(StringRef name, const LinearRowDotConfig &c, const Epilogue &epilogue) {
  Writer w(name, "linear_rowdot.cuh");
  w.type("X", c.x);
  w.type("W", c.w);
  w.type("Y", c.y);
  w.type("P", c.p);
  w.constant("Rows", c.rows);
  w.constant("Cols", c.cols);
  w.constant("KSplit", c.kSplit);
  w.constant("Warps", c.warps);
  w.constant("K", c.k);
  w.norm(c.norm);
  w.constPointer(c.x, "x");
  w.constPointer(c.w, "w");
  w.pointer(c.y, "y");
  w.params("int", {"m", "n"});
  const bool norm = c.norm != FusedNorm::None;
  if (norm)
    normParams(w, c.p);
  std::string e = w.epilogue(epilogue);
  unsigned threads = 32 * c.warps, bytes = c.rows * c.k * scalarBytes(c.x);
  unsigned shared = norm || bytes <= 32 * 1024 ? (bytes + 15) / 16 * 16 : 0;
  std::string t = "RowDot<" + w.config() + ">";
  return w.finish(
      threads, shared,
      t + "::threads == " + Twine(threads) + " && " + t + "::sharedBytes == " + Twine(shared) +
          " && " + t + "::colsPerBlock == " + Twine(rowDotColumns(c)),
      "tile::linearRowDot<" + w.config() + ">(x, w, y, m, n, " + normArguments(norm) +
          ", blockIdx.x, " + (shared ? "(char *)dynamicShared" : "nullptr") + ", " + e + ");");
}

KernelSource linearSkinny(StringRef name, const LinearSkinnyConfig &c, const Epilogue &epilogue) {
  Writer w(name, "linear_skinny.cuh");
  w.type("X", Scalar::F16);
  w.type("W", c.w);
  w.type("Y", c.y);
  w.type("P", c.p);
  w.constant("Rows", c.rows);
  w.constant("KSplit", c.kSplit);
  w.constant("Warps", c.warps);
  w.constant("K", c.k);
  w.constant("WGroup", c.wGroup);
  w.constant("XGroup", c.xGroup);
  w.norm(c.norm);
  w.constPointer(Scalar::F16, "x");
  w.constPointer(c.w, "w");
  w.pointer(c.y, "y");
  w.params("int", {"m", "n"});
  if (c.wGroup > 0)
    w.param("const float *", "wScale");
  const bool norm = c.norm != FusedNorm::None;
  if (norm)
    normParams(w, c.p);
  std::string e = w.epilogue(epilogue);
  unsigned threads = 32 * c.warps, shared = norm || c.xGroup >= 0 ? skinnyRowBytes(c) : 0;
  std::string t = "Skinny<" + w.config() + ">";
  return w.finish(
      threads, shared,
      t + "::threads == " + Twine(threads) + " && " + t + "::sharedBytes == " + Twine(shared) +
          " && " + t + "::columns == " + Twine(skinnyColumns(c)),
      "tile::linearSkinny<" + w.config() + ">(x, w, y, m, n, " +
          (c.wGroup > 0 ? "wScale, " : "nullptr, ") + normArguments(norm) + ", blockIdx.x, " +
          (shared ? "(__half *)dynamicShared" : "nullptr") + ", " + e + ");");
}

KernelSource linearRows(StringRef name, const LinearRowsConfig &c, const Epilogue &epilogue) {
  Writer w(name, "linear_rows.cuh");
  w.type("W", c.w);
  w.type("Y", c.y);
  w.type("P", c.p);
  w.constant("Rows", c.rows);
  w.constant("Groups", c.groups);
  w.constant("Warps", c.warps);
  w.constant("Splits", c.splits);
  w.constant("V", c.pairs ? 2 : 1);
  w.constant("K", c.k);
  w.constant("WGroup", c.wGroup);
  w.norm(c.norm);
  if (c.splits > 1)
    w.cluster(c.splits, 1);
  w.constPointer(Scalar::F16, "x");
  w.constPointer(c.w, "w");
  w.pointer(c.y, "y");
  w.params("int", {"m", "n"});
  if (c.wGroup > 0)
    w.param("const float *", "wScale");
  const bool norm = c.norm != FusedNorm::None;
  if (norm)
    normParams(w, c.p);
  std::string e = w.epilogue(epilogue);
  unsigned threads = 32 * c.warps, shared = rowsSharedBytes(c);
  std::string t = "LinearRows<" + w.config() + ">";
  return w.finish(threads, shared,
                  t + "::threads == " + Twine(threads) + " && " + t + "::sharedBytes == " +
                      Twine(shared) + " && " + t + "::columns == " + Twine(rowsColumns(c)),
                  "tile::linearRows<" + w.config() + ">(x, w, y, m, n, " +
                      (c.wGroup > 0 ? "wScale, " : "nullptr, ") + normArguments(norm) +
                      ", blockIdx.x, blockIdx.y, (float *)dynamicShared, " + e + ");");
}

KernelSource linearStream(StringRef name, const LinearStreamConfig &c, const Epilogue &epilogue) {
  Writer w(name, "linear_stream.cuh");
  w.type("X", Scalar::F16);
  w.type("W", c.w);
  w.type("Y", c.y);
  w.type("P", c.p);
  w.constant("Rows", c.rows);
  w.constant("Warps", c.warps);
  w.constant("K", c.k);
  w.flag("Best", c.best);
  w.norm(c.norm);
  w.constPointer(Scalar::F16, "x");
  w.constPointer(c.w, "w");
  w.pointer(c.y, "y");
  w.params("int", {"m", "n"});
  const bool norm = c.norm != FusedNorm::None;
  if (norm)
    normParams(w, c.p);
  if (c.best)
    w.param("u64 *", "best");
  std::string e = w.epilogue(epilogue);
  unsigned threads = 32 * c.warps, shared = streamSharedBytes(c);
  std::string t = "LinearStream<" + w.config() + ">";
  return w.finish(threads, shared,
                  t + "::threads == " + Twine(threads) + " && " + t +
                      "::sharedBytes == " + Twine(shared),
                  "tile::linearStream<" + w.config() + ">(x, w, y, m, n, " + normArguments(norm) +
                      (c.best ? ", best" : ", nullptr") +
                      ", blockIdx.x, gridDim.x, (__half *)dynamicShared, " + e + ");");
}

KernelSource layerNorm(StringRef name, const LayerNormConfig &c) {
  Writer w(name, "layer_norm.cuh");
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
  if (c.y == Scalar::I8)
    w.param("float *", "yScale");
  w.pointer(c.x, "sum");
  w.param("float", "epsilon");
  w.param("int", "rows");
  return w.finish(c.threads * c.rows, 0, "",
                  "tile::layerNorm<" + w.config() + ">(x, residual, gain, shift, y, " +
                      (c.y == Scalar::I8 ? "yScale" : "nullptr") +
                      ", sum, epsilon, rows, blockIdx.x);");
}

KernelSource quantize(StringRef name, const QuantizeConfig &c) {
  Writer w(name, "quantize.cuh");
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
  Writer w(name, "quantize.cuh");
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
  Writer w(name, "embedding.cuh");
  w.type("W", c.w);
  w.type("P", c.p);
  w.type("Y", c.y);
  w.constant("D", c.d);
  w.constant("Threads", c.threads);
  w.flag("Position", c.position);
  w.constant("Groups", c.groups);
  w.flag("Statistics", c.statistics);
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
          "blockIdx.x);");
}

KernelSource kvAppend(StringRef name, const KvAppendConfig &c) {
  Writer w(name, "kv_append.cuh");
  w.type("X", c.x);
  w.type("Kv", c.kv);
  w.constant("HeadDim", c.headDim);
  w.constant("Heads", c.heads);
  w.constant("Threads", c.threads);
  w.constPointer(c.x, "qkv");
  w.pointer(c.kv, "kv");
  w.param("const int *", "past");
  w.params("int", {"layer", "batchMax", "context", "seq"});
  return w.finish(c.threads, 0, "",
                  "tile::kvAppend<" + w.config() +
                      ">(qkv, kv, past, layer, batchMax, context, seq, blockIdx.x);");
}

unsigned attentionRingBytes(const AttentionConfig &c) {
  int v = std::min<int>(16 / scalarBytes(c.x), c.aligned ? 16 / scalarBytes(c.kv) : 4);
  while (c.headDim % v != 0)
    v /= 2;
  const int vectors = c.headDim / v, unroll = vectors > 32 ? 2 : 4;
  int lanes = 1;
  while (lanes < std::min(vectors, 32))
    lanes *= 2;
  const unsigned row = c.headDim * scalarBytes(c.kv) + (c.kv == Scalar::I8 ? 4 : 0);
  return c.warps * c.ring * 2 * (32 / lanes * unroll) * row;
}

KernelSource attentionDecode(StringRef name, const AttentionConfig &c) {
  Writer w(name, "attention_decode.cuh");
  attentionMembers(w, c);
  w.constant("Warps", c.warps);
  w.constant("Splits", c.splits);
  w.flag("Cluster", c.cluster);
  w.flag("Aligned", c.aligned);
  w.constant("Ring", c.ring);
  if (c.cluster)
    w.cluster(c.splits, 1);
  attentionParams(w, c, true);
  const unsigned shared = attentionRingBytes(c);
  return w.finish(32 * c.warps, shared,
                  "DecodeKeys<" + w.config() + ">::ringBytes == " + Twine(shared),
                  "tile::attentionDecode<" + w.config() +
                      ">(qkv, kv, out, past, keyMask, partial, counters, layer, batchMax, context, "
                      "seq, maskStride, scale, blockIdx.x, blockIdx.y, blockIdx.z, " +
                      (shared ? "(char *)dynamicShared" : "nullptr") + ");");
}

/// The output of the kernels on tensor cores.
static std::string outArguments(const AttentionConfig &c) {
  return c.quantise ? "out, outScale" : "out, nullptr";
}

KernelSource attentionPrefillMma(StringRef name, const AttentionConfig &c) {
  Writer w(name, "attention_prefill_mma.cuh");
  attentionMembers(w, c);
  w.constant("Warps", c.warps);
  w.constant("BK", c.keys);
  attentionParams(w, c, false);
  unsigned shared = (16 * c.warps + 4 * c.keys) * (c.headDim + 8) * 2;
  return w.finish(32 * c.warps, shared,
                  "AttentionMma<" + w.config() + ">::sharedBytes == " + Twine(shared),
                  // Causal tiles grow with their index: the longest start first.
                  "tile::attentionPrefillMma<" + w.config() + ">(qkv, kv, " + outArguments(c) +
                      ", past, keyMask, layer, batchMax, context, seq, maskStride, "
                      "scale, gridDim.x - 1 - "
                      "blockIdx.x, blockIdx.y, blockIdx.z, (__half *)dynamicShared);");
}

KernelSource attentionPrefillWgmma(StringRef name, const AttentionConfig &c) {
  Writer w(name, "attention_prefill_wgmma.cuh");
  w.type("Y", c.quantise ? Scalar::I8 : Scalar::F16);
  w.constant("Heads", c.heads);
  w.constant("KeySplit", c.splits);
  w.constant("Stages", 2);
  w.flag("Causal", c.causal);
  w.flag("Mask", c.mask);
  for (const char *map : {"qkvMap", "kvMap"})
    w.param("const __grid_constant__ TensorMap", map);
  w.pointer(c.kv, "kv");
  w.pointer(c.quantise ? Scalar::I8 : Scalar::F16, "out");
  if (c.quantise)
    w.param("float *", "outScale");
  w.params("const int *", {"past", "keyMask"});
  w.params("int", {"layer", "batchMax", "context", "seq", "maskStride"});
  w.param("float", "scale");
  unsigned threads = 128 * c.splits, shared = (1 + 4 * c.splits) * 64 * 64 * 2 + 1024;
  std::string t = "AttentionWgmma<" + w.config() + ">";
  return w.finish(
      threads, shared,
      t + "::threads == " + Twine(threads) + " && " + t + "::sharedBytes == " + Twine(shared),
      // Causal tiles grow with their index: the longest start first.
      "tile::attentionPrefillWgmma<" + w.config() + ">(qkvMap, kvMap, kv, " + outArguments(c) +
          ", past, keyMask, layer, batchMax, context, seq, maskStride, "
          "scale, gridDim.z - 1 - blockIdx.z, blockIdx.x, blockIdx.y, dynamicShared);",
      4 / c.splits);
}

KernelSource attentionPrefillSimt(StringRef name, const AttentionConfig &c) {
  Writer w(name, "attention_prefill_simt.cuh");
  attentionMembers(w, c);
  w.constant("TQ", c.tq);
  w.constant("TK", c.tk);
  attentionParams(w, c, false);
  unsigned quads = (c.headDim + 3) / 4, stride = 4 * (quads + (quads % 2 == 0));
  unsigned shared = 4 * (16 * c.tq * stride + 16 * c.tk * stride + 16 * c.tq * (16 * c.tk + 4));
  return w.finish(256, shared, "AttentionSimt<" + w.config() + ">::sharedBytes == " + Twine(shared),
                  "tile::attentionPrefillSimt<" + w.config() +
                      ">(qkv, kv, out, past, keyMask, layer, batchMax, context, seq, maskStride, "
                      "scale, gridDim.x - 1 - "
                      "blockIdx.x, blockIdx.y, blockIdx.z, (float *)dynamicShared);");
}

KernelSource attentionPrefillTf32(StringRef name, const AttentionConfig &c) {
  Writer w(name, "attention_prefill_tf32.cuh");
  attentionMembers(w, c);
  w.constant("Warps", c.warps);
  w.constant("BK", c.keys);
  w.constant("Splits", c.splits);
  if (c.splits > 1)
    w.cluster(1, c.splits);
  attentionParams(w, c, false);
  unsigned threads = c.warps * c.keys;
  unsigned shared = (16 * c.warps + 4 * c.keys) * (c.headDim + 4) * 4;
  std::string t = "AttentionTf32<" + w.config() + ">";
  return w.finish(
      threads, shared,
      t + "::threads == " + Twine(threads) + " && " + t + "::sharedBytes == " + Twine(shared),
      "tile::attentionPrefillTf32<" + w.config() +
          ">(qkv, kv, out, past, keyMask, layer, batchMax, context, seq, maskStride, "
          "scale, gridDim.x - 1 - "
          "blockIdx.x, blockIdx.y, blockIdx.z / " +
          Twine(c.splits) + ", blockIdx.z % " + Twine(c.splits) + ", (float *)dynamicShared);");
}

KernelSource gatherLast(StringRef name, const GatherLastConfig &c) {
  Writer w(name, "token_ops.cuh");
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
  Writer w(name, "token_ops.cuh");
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
  Writer w(name, "token_ops.cuh");
  w.param("const u64 *", "best");
  w.param("int *", "next");
  w.param("int", "parts");
  return w.finish(32, 0, "", "tile::argmaxParts(best, next, parts, blockIdx.x);");
}

KernelSource advance(StringRef name) {
  Writer w(name, "token_ops.cuh");
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
