// e2e_outliers IN.onnx OUT.onnx [SCALE [CHANNELS]]: the hard case of quantisation, a model with
// outliers in its activations that computes bit for bit what it computed without them.
//
// In CHANNELS (default 4) channels of each layer norm, or RMS norm written out, the same channels
// in every layer, gain and bias are multiplied by a power of two, SCALE (default 64) and SCALE / 2
// in turn, and the matching rows of all weights that read the norm's result are divided by it. No
// product of an activation and a weight changes, nor any sum. Half precision becomes single first,
// where no division underflows: what the result equals exactly is the model of SCALE 1. Norms whose
// result anything else reads, such as the one before a tied head, stay.
#include "frontend/files/DecodeTensor.h"
#include "frontend/files/OnnxFile.h"
#include "ir/Error.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"

#include <cmath>
#include <cstring>
#include <fstream>

using namespace gpt2c;

namespace {

void widenType(onnx::TypeProto &type) {
  if (type.has_tensor_type() && type.tensor_type().elem_type() == onnx::TensorProto::FLOAT16)
    type.mutable_tensor_type()->set_elem_type(onnx::TensorProto::FLOAT);
}

llvm::Error widenTensor(onnx::TensorProto &proto) {
  if (proto.data_type() != onnx::TensorProto::FLOAT16)
    return llvm::Error::success();
  auto tensor = decodeTensor(proto, nullptr, nullptr);
  if (!tensor)
    return tensor.takeError();
  Tensor wide = tensor->cast(DType::F32);
  // The constants of GELU get the digits back that half precision had no room for: recognising it
  // in single precision takes them.
  for (float exact : {0.7978845608f /* sqrt(2 / pi) */, 0.044715f})
    if (wide.count() == 1 && floatToHalf(exact) == floatToHalf(*wide.data<float>()))
      *wide.data<float>() = exact;
  proto.clear_int32_data();
  proto.set_raw_data(wide.raw(), size_t(wide.bytes()));
  proto.set_data_type(onnx::TensorProto::FLOAT);
  return llvm::Error::success();
}

/// Half precision becomes single precision everywhere in the graph.
llvm::Error widen(onnx::GraphProto &graph) {
  for (auto *list : {graph.mutable_input(), graph.mutable_output(), graph.mutable_value_info()})
    for (onnx::ValueInfoProto &value : *list)
      widenType(*value.mutable_type());
  for (onnx::TensorProto &t : *graph.mutable_initializer())
    if (llvm::Error e = widenTensor(t))
      return e;
  for (onnx::NodeProto &node : *graph.mutable_node())
    for (onnx::AttributeProto &attribute : *node.mutable_attribute()) {
      if (attribute.has_t())
        if (llvm::Error e = widenTensor(*attribute.mutable_t()))
          return e;
      if (node.op_type() == "Cast" && attribute.name() == "to" &&
          attribute.i() == onnx::TensorProto::FLOAT16)
        attribute.set_i(onnx::TensorProto::FLOAT);
    }
  return llvm::Error::success();
}

/// A constant matrix that reads a norm's result, with its axis of input channels.
struct Reader {
  onnx::TensorProto *weight;
  int axis;
};

class Model {
public:
  explicit Model(onnx::GraphProto &graph) : graph_(graph) {
    for (onnx::TensorProto &t : *graph.mutable_initializer())
      constants_[t.name()] = &t;
    for (onnx::NodeProto &node : *graph.mutable_node())
      for (const std::string &name : node.input())
        users_[name].push_back(&node);
    for (const onnx::ValueInfoProto &output : graph.output())
      users_[output.name()].push_back(nullptr);
  }

  /// Returns how many norms were changed.
  unsigned addOutliers(float scale, int64_t channels) {
    unsigned changed = 0;
    for (const onnx::NodeProto &norm : graph_.node()) {
      const bool rms = norm.op_type() == "Mul"; // of an RMS norm: the gain times what is normalised
      if (!rms && (norm.op_type() != "LayerNormalization" || norm.input_size() != 3))
        continue;
      onnx::TensorProto *gain = ownConstant(norm.input(1)),
                        *bias = rms ? nullptr : ownConstant(norm.input(2));
      if (rms && !gain)
        gain = ownConstant(norm.input(0));
      std::vector<Reader> readers;
      if (!gain || (!rms && !bias) || gain->dims_size() != 1 ||
          !findReaders(norm.output(0), readers))
        continue;
      int64_t width = gain->dims(0);
      for (int64_t i = 0; i < channels; ++i) {
        int64_t channel = (2 * i + 1) * width / (2 * channels);
        float factor = i % 2 ? scale / 2 : scale;
        floats(*gain)[channel] *= factor;
        if (bias)
          floats(*bias)[channel] *= factor;
        for (const Reader &r : readers) {
          int64_t columns = r.weight->dims(1), count = r.weight->dims(1 - r.axis);
          for (int64_t j = 0; j < count; ++j)
            floats(*r.weight)[r.axis == 0 ? channel * columns + j : j * columns + channel] /=
                factor;
        }
      }
      ++changed;
    }
    return changed;
  }

private:
  /// Single-precision elements in raw bytes.
  static float *floats(onnx::TensorProto &t) {
    return reinterpret_cast<float *>(t.mutable_raw_data()->data());
  }

  /// A constant of single precision that one node alone reads; null otherwise.
  onnx::TensorProto *ownConstant(const std::string &name) {
    onnx::TensorProto *t = constants_.lookup(name);
    bool raw = t && t->data_type() == onnx::TensorProto::FLOAT && t->has_raw_data();
    return raw && users_[name].size() == 1 ? t : nullptr;
  }

  /// The weights of all products that read `value`, perhaps reshaped; false when anything else
  /// does.
  bool findReaders(const std::string &value, std::vector<Reader> &out) {
    for (const onnx::NodeProto *user : users_[value]) {
      if (!user || user->input(0) != value)
        return false;
      const std::string &op = user->op_type();
      if (op == "Shape")
        continue;
      if (op == "Reshape" || op == "Identity") {
        if (!findReaders(user->output(0), out))
          return false;
        continue;
      }
      bool transposed = false;
      for (const onnx::AttributeProto &a : user->attribute())
        if (a.name() == "transB")
          transposed = a.i() != 0;
        else if (a.name() == "transA" && a.i() != 0)
          return false;
      onnx::TensorProto *weight =
          op == "MatMul" || op == "Gemm" ? ownConstant(user->input(1)) : nullptr;
      if (!weight || weight->dims_size() != 2)
        return false;
      out.push_back({weight, transposed ? 1 : 0});
    }
    return !out.empty();
  }

  onnx::GraphProto &graph_;
  llvm::StringMap<onnx::TensorProto *> constants_;
  llvm::StringMap<std::vector<const onnx::NodeProto *>> users_; // null: an output of the graph
};

} // namespace

static llvm::Error run(llvm::ArrayRef<const char *> arguments) {
  double scale = 64;
  int64_t channels = 4;
  int exponent;
  if (arguments.size() < 2 || arguments.size() > 4 ||
      (arguments.size() > 2 && llvm::StringRef(arguments[2]).getAsDouble(scale)) ||
      (arguments.size() > 3 && llvm::StringRef(arguments[3]).getAsInteger(10, channels)) ||
      std::frexp(scale, &exponent) != 0.5 || channels < 1)
    return makeError(ExitCode::Usage, "usage: e2e_outliers IN.onnx OUT.onnx [SCALE [CHANNELS]], "
                                      "where SCALE is a power of two");
  auto buffer = readFile(arguments[0]);
  if (!buffer)
    return buffer.takeError();
  onnx::ModelProto model;
  if (llvm::Error e = parseMessage((*buffer)->getBuffer(), model, arguments[0], "an ONNX model"))
    return e;
  if (llvm::Error e = widen(*model.mutable_graph()))
    return e;
  unsigned changed = Model(*model.mutable_graph()).addOutliers(float(scale), channels);
  if (changed == 0)
    return makeError(
        ExitCode::Unsupported,
        llvm::Twine(arguments[0]) +
            " has no norm whose gain, bias and weights behind it are constants of its own");
  std::ofstream out(arguments[1], std::ios::binary);
  if (!model.SerializeToOstream(&out) || !out.flush())
    return makeError(ExitCode::Io, "cannot write '" + llvm::Twine(arguments[1]) + "'");
  llvm::outs() << "outliers behind " << changed << " norms\n";
  return llvm::Error::success();
}

int main(int argc, char **argv) {
  return int(printError(run(llvm::ArrayRef<const char *>(argv + 1, argv + argc)), llvm::errs()));
}
