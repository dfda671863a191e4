// Writes the source of one kernel: a config struct named after it, then the entry point.
#pragma once

#include "codegen/KernelSource.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

namespace gpt2c {

inline const char *cudaType(Scalar s) {
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
inline const char *cudaBool(bool b) { return b ? "true" : "false"; }

/// Writes one instance: a config struct named after the kernel, then the entry point.
class KernelWriter {
public:
  KernelWriter(llvm::StringRef name, llvm::StringRef header) {
    kernel_.name = name.str();
    kernel_.headers.push_back(header.str());
  }

  void type(llvm::StringRef name, Scalar s) {
    members_ += ("  using " + name + " = " + cudaType(s) + ";\n").str();
  }
  void constant(llvm::StringRef name, int value) {
    members_ += "  static constexpr int " + name.str() + " = " + std::to_string(value) + ";\n";
  }
  void flag(llvm::StringRef name, bool value) {
    members_ += "  static constexpr bool " + name.str() + " = " + cudaBool(value) + ";\n";
  }
  void norm(FusedNorm norm) {
    const char *names[] = {"None", "Layer", "Rms"};
    member(llvm::Twine("static constexpr NormKind Norm = NormKind::") + names[(int)norm] + ";");
  }
  /// That many blocks along x and z are one thread block cluster where there is such a thing.
  void cluster(int x, int z) {
    before_ += "#if __CUDA_ARCH__ >= 900\n#define " + kernel_.name + "Cluster __cluster_dims__(" +
               std::to_string(x) + ", 1, " + std::to_string(z) + ")\n#else\n#define " +
               kernel_.name + "Cluster\n#endif\n";
    attribute_ = kernel_.name + "Cluster ";
  }
  void member(const llvm::Twine &line) { members_ += "  " + line.str() + "\n"; }

  /// A parameter of the entry point.
  void param(llvm::StringRef type, llvm::StringRef name) {
    kernel_.params.push_back(name.str());
    params_ +=
        (params_.empty() ? "" : ", ") + type.str() + (type.ends_with("*") ? "" : " ") + name.str();
  }
  /// The kernel computes what it can without this one where it is null.
  void optional(llvm::StringRef name) { kernel_.optional.push_back(name.str()); }
  void params(llvm::StringRef type, llvm::ArrayRef<const char *> names) {
    for (const char *name : names)
      param(type, name);
  }
  void pointer(Scalar s, llvm::StringRef name) { param(std::string(cudaType(s)) + " *", name); }
  void constPointer(Scalar s, llvm::StringRef name) {
    param(std::string("const ") + cudaType(s) + " *", name);
  }

  /// The parameters of a scale that is given; returns the expression that applies it.
  std::string given(Given g) {
    if (g == Given::None)
      return "quantised::AsTheyAre{}";
    if (g == Given::Scale) {
      param("float", "yInverse");
      return "quantised::ByScale{yInverse}";
    }
    params("float", {"yInverse", "yZero"});
    return "quantised::ByScaleAndZero{yInverse, yZero}";
  }

  /// The struct <name>Epilogue and its parameters; returns the expression that makes one for rows
  /// of `n` elements.
  std::string epilogue(const Epilogue &stages, const std::string &n = "n") {
    kernel_.headers.push_back("templates/linear/parts/epilogue.cuh");
    std::string fields, values, operands, loads, body, prefetches, staged;
    int count = 0, columns = 0;
    for (const EpilogueStage &stage : stages) {
      auto line = [&](const llvm::Twine &text) { body += "    epilogue::" + text.str() + ";\n"; };
      // The operand is applied by `function`; `from` says where a row and column have theirs.
      auto operand = [&](llvm::StringRef function, llvm::StringRef load, llvm::StringRef from) {
        const std::string e = "e" + std::to_string(count++);
        fields += ("  const " + llvm::Twine(cudaType(stage.operand)) + " *" + e + ";\n").str();
        values += e + ", ";
        operands += "    float " + e + "[V];\n";
        loads += ("    " + load + "<V>(" + e + from + ", o." + e + ");\n").str();
        constPointer(stage.operand, e);
        line(function + "(v, o." + e + ")");
        if (from != " + col")
          return;
        prefetches += "    prefetch(" + e + " + col);\n";
        staged += ("    " + llvm::Twine(e) + " = gpt2c::stageColumns(" + e + ", shared[" +
                   llvm::Twine(columns++) + "], col0, count, thread, threads);\n")
                      .str();
      };
      auto quantise = [&](const char *type, Given g) {
        kernel_.headers.push_back("templates/device/int8.cuh");
        fields += "  quantised::" + std::string(type) + " given;\n";
        values += given(g) + ", ";
        body += "    given.apply(v);\n";
      };
      auto column = [&](llvm::StringRef function) { operand(function, "loadFloats", " + col"); };
      auto matrix = [&](llvm::StringRef function) {
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
      case EpilogueStage::AddLastRows: {
        const std::string length = ("e" + llvm::Twine(count) + "Length").str();
        const std::string seq = ("e" + llvm::Twine(count) + "Seq").str();
        operand("add", "loadFloats",
                (" + epilogue::lastRow(" + llvm::Twine(length) + ", " + seq + ", row) * n + col")
                    .str());
        fields += ("  const int *" + llvm::Twine(length) + ";\n  int " + seq + ";\n").str();
        values += (llvm::Twine(length) + ", " + seq + ", ").str();
        param("const int *", length);
        param("int", seq);
        break;
      }
      case EpilogueStage::ScaleRow:
        operand("mul", "epilogue::loadOne", " + row");
        break;
      case EpilogueStage::ScaleColumn:
        column("mul");
        break;
      case EpilogueStage::ScaleAll:
        operand("mul", "epilogue::loadOne", "");
        break;
      case EpilogueStage::ScaleByValue: {
        const std::string e = "e" + std::to_string(count++);
        fields += "  float " + e + ";\n";
        values += e + ", ";
        param("float", e);
        line("scale(v, " + e + ")");
        break;
      }
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
      case EpilogueStage::QuantiseByScale:
        quantise("ByScale", Given::Scale);
        break;
      case EpilogueStage::QuantiseByScaleAndZero:
        quantise("ByScaleAndZero", Given::ScaleAndZero);
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

  /// That a template's `type` has the threads and the shared memory that a launch is told.
  static std::string sizesCheck(const std::string &type, unsigned threads, unsigned sharedBytes) {
    return type + "::threads == " + std::to_string(threads) + " && " + type +
           "::sharedBytes == " + std::to_string(sharedBytes);
  }

  /// Ends the instance. `check` is a condition on the template's own constants, so that what the
  /// launch is told here and what the template computes cannot differ.
  /// `blocks` of the kernel are meant to share a multiprocessor: registers are limited to that.
  KernelSource finish(unsigned threads, unsigned sharedBytes, const llvm::Twine &check,
                      const llvm::Twine &body, unsigned blocks = 0) {
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

} // namespace gpt2c
