#include "frontend/LocalFunctions.h"
#include "frontend/Graph.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

namespace gpt2c {

namespace {

using google::protobuf::internal::WireFormatLite;

/// Calls f(bytes) for each occurrence of a length-delimited field of a serialized message. Fields
/// newer than the installed onnx.proto can only be read this way.
void forEachField(const std::string &message, int field,
                  llvm::function_ref<void(const std::string &)> f) {
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t *>(message.data()),
                                            static_cast<int>(message.size()));
  uint32_t wanted = WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  while (uint32_t tag = in.ReadTag()) {
    if (tag != wanted) {
      if (!WireFormatLite::SkipField(&in, tag))
        return;
      continue;
    }
    uint32_t size;
    std::string bytes;
    if (!in.ReadVarint32(&size) || !in.ReadString(&bytes, size))
      return;
    f(bytes);
  }
}

constexpr int functionOverload = 13, nodeOverload = 8, functionAttributeDefaults = 11;

std::string overloadOf(const google::protobuf::MessageLite &message, int field) {
  std::string overload;
  forEachField(message.SerializePartialAsString(), field,
               [&](const std::string &bytes) { overload = bytes; });
  return overload;
}

std::string key(llvm::StringRef domain, llvm::StringRef name, llvm::StringRef overload) {
  return (canonicalDomain(domain) + llvm::Twine('\0') + name + llvm::Twine('\0') + overload).str();
}

using Attributes = llvm::StringMap<const onnx::AttributeProto *>;

void bind(onnx::NodeProto &node, const Attributes &given) {
  auto *attributes = node.mutable_attribute();
  for (int i = 0; i < attributes->size();) {
    onnx::AttributeProto &a = *attributes->Mutable(i);
    if (!a.ref_attr_name().empty()) {
      auto it = given.find(a.ref_attr_name());
      if (it == given.end()) {
        attributes->DeleteSubrange(i, 1);
        continue;
      }
      std::string name = a.name();
      a.CopyFrom(*it->second);
      a.set_name(name);
    } else {
      if (a.has_g())
        for (onnx::NodeProto &n : *a.mutable_g()->mutable_node())
          bind(n, given);
      for (onnx::GraphProto &g : *a.mutable_graphs())
        for (onnx::NodeProto &n : *g.mutable_node())
          bind(n, given);
    }
    ++i;
  }
}

} // namespace

LocalFunctions::LocalFunctions(const onnx::ModelProto &model) {
  for (const onnx::FunctionProto &f : model.functions())
    functions_.try_emplace(key(f.domain(), f.name(), overloadOf(f, functionOverload)), &f);
}

const onnx::FunctionProto *LocalFunctions::find(const onnx::NodeProto &node) const {
  if (functions_.empty())
    return nullptr;
  return functions_.lookup(key(node.domain(), node.op_type(), overloadOf(node, nodeOverload)));
}

std::shared_ptr<onnx::FunctionProto> instantiate(const onnx::FunctionProto &function,
                                                 const onnx::NodeProto &call) {
  std::vector<onnx::AttributeProto> defaults;
  forEachField(function.SerializePartialAsString(), functionAttributeDefaults,
               [&](const std::string &bytes) {
                 onnx::AttributeProto a;
                 if (a.ParsePartialFromString(bytes))
                   defaults.push_back(std::move(a));
               });
  Attributes given;
  for (const onnx::AttributeProto &a : defaults)
    given[a.name()] = &a;
  for (const onnx::AttributeProto &a : call.attribute())
    given[a.name()] = &a;
  auto body = std::make_shared<onnx::FunctionProto>(function);
  for (onnx::NodeProto &n : *body->mutable_node())
    bind(n, given);
  return body;
}

} // namespace gpt2c
