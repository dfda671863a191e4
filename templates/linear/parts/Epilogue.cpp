// The text of an epilogue's struct.
#include "templates/linear/parts/Epilogue.h"

#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

namespace {

/// The parts of the struct that its stages add to.
class EpilogueWriter {
public:
  explicit EpilogueWriter(KernelWriter &w) : w_(w) {
    w.include("templates/linear/parts/epilogue.cuh");
  }

  void stage(const EpilogueStage &stage);
  std::string finish(llvm::StringRef n);

private:
  using Kind = EpilogueStage::Kind;

  std::string nextOperand() { return "e" + std::to_string(operands_++); }
  /// A member of the struct; `value` initialises it.
  void field(const llvm::Twine &type, const llvm::Twine &name, llvm::StringRef value);
  /// `function` of epilogue:: on the values v.
  void apply(const llvm::Twine &call) { body_ += ("    epilogue::" + call + ";\n").str(); }
  /// Applies the operand e by `function`; `load` reads it at e + `from`.
  void operand(const EpilogueStage &stage, llvm::StringRef function, llvm::StringRef load,
               const llvm::Twine &from);
  /// One for each column: may be prefetched, and staged in shared memory.
  void column(const EpilogueStage &stage, llvm::StringRef function);
  void matrix(const EpilogueStage &stage, llvm::StringRef function) {
    operand(stage, function, "loadFloats", " + row * n + col");
  }
  void lastRows(const EpilogueStage &stage);
  void quantise(llvm::StringRef type, Given given);
  void gate(Kind activation);
  void rotate(const EpilogueRotation &rotation);

  KernelWriter &w_;
  int operands_ = 0, columns_ = 0;
  std::string fields_, values_, loaded_, loads_, body_, prefetches_, staged_, traits_;
  std::string rotation_, stored_, angles_; ///< of a rotation behind the struct
};

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
  apply(function + "(v, o." + e + ")");
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

/// The function of epilogue:: that a stage of an activation calls.
static llvm::StringRef functionOf(EpilogueStage::Kind activation) {
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

void EpilogueWriter::gate(Kind activation) {
  traits_ += "  using Gated = void;\n  using Paired = void;\n";
  body_ += "    float g[maxInt(1, V / 2)];\n";
  apply("gates(v, g)");
  if (activation != Kind::Gate)
    apply(functionOf(activation) + "(g)");
  apply("gated(v, g)");
}

void EpilogueWriter::rotate(const EpilogueRotation &r) {
  w_.include("templates/linear/parts/rotation.cuh");
  constexpr llvm::StringLiteral positions[] = {"OfRows", "OfSequence", "OfFirst"};
  rotation_ = llvm::formatv("epilogue::Rotation<{0}, {1}, {2}, {3}, {4}, epilogue::Positions::{5}>",
                            cudaType(r.table), cudaType(r.position), r.headDim, r.pairs, r.columns,
                            positions[r.of])
                  .str();
  stored_ = cudaType(r.stored).str();
  const std::string table = ("const " + cudaType(r.table) + " *").str(),
                    position = ("const " + cudaType(r.position) + " *").str();
  for (const char *name : {"cosines", "sines"})
    angles_ += w_.declare(table, name) + ", ";
  angles_ += w_.declare(position, "positions") + ", ";
  for (const char *name : {"places", "rowsOfSequence"})
    angles_ += w_.declare("int", name) + ", ";
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
  case Kind::Gate:
    return gate(stage.ofGate);
  case Kind::Rotate:
    return rotate(stage.rotation);
  case Kind::QuantiseByScale:
    return quantise("ByScale", Given::Scale);
  case Kind::QuantiseByScaleAndZero:
    return quantise("ByScaleAndZero", Given::ScaleAndZero);
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
  return rotation_.empty() ? made
                           : "epilogue::Turned<" + name + ", " + rotation_ + ", " + stored_ + ">{" +
                                 made + ", {" + angles_ + "}}";
}

} // namespace

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
