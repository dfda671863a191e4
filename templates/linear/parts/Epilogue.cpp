// The text of an epilogue's struct.
#include "templates/linear/ends/EpilogueEnd.h"
#include "templates/linear/parts/EpilogueWriter.h"

#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

EpilogueWriter::EpilogueWriter(KernelWriter &w) : w_(w) {
  w.include("templates/linear/parts/epilogue.cuh");
}

void EpilogueWriter::field(const llvm::Twine &type, const llvm::Twine &name,
                           llvm::StringRef value) {
  fields_ += ("  " + type + name + ";\n").str();
  values_ += (value + ", ").str();
}

void EpilogueWriter::operand(const EpilogueStage &stage, llvm::StringRef function,
                             llvm::StringRef load, const llvm::Twine &from) {
  const std::string e = nextOperand(), type = ("const " + cudaType(stage.operand) + " *").str();
  field(type, e, w_.declare(type, e));
  loaded_ += "    float " + e + "[V];\n";
  loads_ += ("    " + load + "<V>(" + e + from + ", o." + e + ");\n").str();
  apply(function + "(v, o." + llvm::Twine(e) + ")");
}

void EpilogueWriter::column(const EpilogueStage &stage, llvm::StringRef function) {
  const std::string e = "e" + std::to_string(operands_);
  operand(stage, function, "loadFloats", " + col");
  prefetches_ += "    prefetch(" + e + " + col);\n";
  staged_ += ("    " + llvm::Twine(e) + " = gpt2c::stageColumns(" + e + ", shared[" +
              llvm::Twine(columns_++) + "], col0, count, thread, threads);\n")
                 .str();
}

void EpilogueWriter::lastRows(const EpilogueStage &stage) {
  const std::string e = "e" + std::to_string(operands_), length = e + "Length", seq = e + "Seq";
  operand(stage, "add", "loadFloats",
          " + epilogue::lastRow(" + llvm::Twine(length) + ", " + seq + ", row) * n + col");
  field("const int *", length, w_.declare("const int *", length));
  field("int ", seq, w_.declare("int", seq));
}

void EpilogueWriter::quantise(llvm::StringRef type, Given given) {
  w_.include("templates/device/int8.cuh");
  field("quantised::" + type + " ", "given", w_.given(given));
  body_ += "    given.apply(v);\n";
}

std::string functionOf(EpilogueStage::Kind activation) {
  switch (activation) {
#define ACTIVATION(Name, inIr, function, ...)                                                      \
  case EpilogueStage::Name:                                                                        \
    return #function;
#define HALVES(Name, function, Of)                                                                 \
  case EpilogueStage::Name:                                                                        \
    return #function;
#include "ir/Activations.def"
  default:
    return "";
  }
}

void EpilogueWriter::wrapIn(llvm::StringRef outer, std::string types, std::string values) {
  outer_ = {outer.str(), std::move(types), std::move(values)};
}

void EpilogueWriter::stage(const EpilogueStage &stage) {
  switch (stage.kind) {
  case Kind::AddBias:
    return column(stage, "add");
  case Kind::AddMatrix:
    return matrix(stage, "add");
  case Kind::MulMatrix:
    return matrix(stage, "mul");
  case Kind::AddLastRows:
    return lastRows(stage);
  case Kind::ScaleRow:
    return operand(stage, "mul", "epilogue::loadOne", " + row");
  case Kind::ScaleColumn:
    return column(stage, "mul");
  case Kind::ScaleAll:
    return operand(stage, "mul", "epilogue::loadOne", "");
  case Kind::ScaleByValue: {
    const std::string e = nextOperand();
    field("float ", e, w_.declare("float", e));
    return apply("scale(v, " + e + ")");
  }
#define ACTIVATION(Name, ...) case Kind::Name:
#define HALVES(Name, ...) case Kind::Name:
#include "ir/Activations.def"
    return apply(functionOf(stage.kind) + "(v)");
#define PRODUCT_END(Name, ...)                                                                     \
  case Kind::Name:                                                                                 \
    return end##Name.write(*this, stage);
#include "schedule/products/ProductEnds.def"
  case Kind::QuantiseByScale:
    return quantise("ByScale", Given::Scale);
  case Kind::QuantiseByScaleAndZero:
    return quantise("ByScaleAndZero", Given::ScaleAndZero);
  case Kind::QuantiseByFp8Scale:
    return quantise("ByFp8Scale", Given::Fp8Scale);
  }
}

std::string EpilogueWriter::finish(llvm::StringRef n) {
  const std::string name = w_.name() + "Epilogue";
  w_.before("struct " + name + " {\n" + fields_ + "  int n;\n" + traits_ +
            "  template <int V> struct Operands {\n" + loaded_ +
            "  };\n"
            "  template <int V> __device__ __forceinline__ Operands<V> load(i64 row, i64 col) "
            "const {\n    Operands<V> o;\n" +
            loads_ +
            "    return o;\n  }\n"
            "  template <int V> __device__ __forceinline__ void apply(float (&v)[V], const "
            "Operands<V> &o) const {\n" +
            body_ +
            "  }\n  template <int V> __device__ __forceinline__ void operator()(float (&v)[V], "
            "i64 row, i64 col) const {\n    apply(v, load<V>(row, col));\n  }\n"
            "  __device__ __forceinline__ void prefetchColumn(i64 col) const {\n" +
            prefetches_ + "  }\n  static constexpr int columnOperands = " + llvm::Twine(columns_) +
            ";\n  template <int W>\n  __device__ __forceinline__ void stageColumns(float "
            "(*shared)[W], int col0, int count, int thread, int threads) {\n" +
            staged_ + "  }\n};\n");
  const std::string made = name + "{" + values_ + n.str() + "}";
  return outer_.type.empty() ? made
                             : outer_.type + "<" + name + ", " + outer_.types + ">{" + made + ", " +
                                   outer_.values + "}";
}

EpilogueStage::Kind stageOf(Activation a) {
  switch (a) {
#define ACTIVATION(Name, ...)                                                                      \
  case Activation::Name:                                                                           \
    return EpilogueStage::Name;
#include "ir/Activations.def"
  case Activation::None:
    break;
  }
  llvm_unreachable("none is no stage");
}

void halveActivations(Epilogue &e) {
#define HALVES(Name, function, Of)                                                                 \
  for (EpilogueStage & stage : e)                                                                  \
    if (stage.kind == EpilogueStage::Of)                                                           \
      stage.kind = EpilogueStage::Name;
#include "ir/Activations.def"
}

std::string writeEpilogue(KernelWriter &w, const Epilogue &stages, llvm::StringRef n) {
  EpilogueWriter epilogue(w);
  for (const EpilogueStage &stage : stages)
    epilogue.stage(stage);
  return epilogue.finish(n);
}

} // namespace gpt2c
