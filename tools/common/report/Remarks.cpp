#include "tools/common/report/Remarks.h"

#include "tools/runtime-common/Table.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/JSON.h"

namespace gpt2c {

static bool differOnlyInPlace(const Remark &a, const Remark &b) {
  return a.severity == b.severity && a.pass == b.pass && !a.pattern.empty() &&
         a.pattern == b.pattern && a.matched == b.matched && a.op == b.op &&
         a.attribute == b.attribute;
}

/// Remarks that say the same about different places.
struct RemarkGroup {
  const Remark &first;
  size_t count = 0;
  int64_t launches = 0;
  Dim bytes = {};
};

static void print(const RemarkGroup &g, const StepSizes &sizes, llvm::raw_ostream &os) {
  constexpr size_t shown = 4;
  const Remark &r = g.first;
  os << (r.severity == Remark::Missed ? "missed: " : "remark: ") << r.pass << ": " << r.message;
  if (!r.nodes.empty()) {
    os << " [";
    llvm::interleaveComma(llvm::ArrayRef(r.nodes).take_front(shown), os);
    if (r.nodes.size() > shown)
      os << " and " << r.nodes.size() - shown << " more";
    os << "]";
  }
  if (g.count > 1)
    os << "; the same at " << g.count - 1 << (g.count == 2 ? " other place" : " other places")
       << " (--remarks names them)";
  int64_t bytes = bytesAt(g.bytes, sizes);
  if (g.launches > 0 || bytes > 0) {
    os << "; " << (g.count > 1 ? "together they cost " : "it costs ");
    if (g.launches > 0)
      os << g.launches << (g.launches == 1 ? " launch" : " launches") << (bytes > 0 ? " and " : "");
    if (bytes > 0)
      os << formatBytes(bytes);
    os << " a step";
  }
  os << "\n";
}

void printRemarks(llvm::ArrayRef<Remark> remarks, const StepSizes &sizes, bool all,
                  llvm::raw_ostream &os) {
  std::vector<RemarkGroup> groups;
  for (const Remark &r : remarks) {
    auto same = llvm::find_if(
        groups, [&](const RemarkGroup &g) { return !all && differOnlyInPlace(g.first, r); });
    RemarkGroup &group = same == groups.end() ? groups.emplace_back(RemarkGroup{r}) : *same;
    ++group.count;
    group.launches += r.launches;
    group.bytes = group.bytes + r.bytes;
  }
  for (const RemarkGroup &g : groups)
    print(g, sizes, os);
}

void writeRemarks(llvm::ArrayRef<Remark> remarks, const StepSizes &sizes, llvm::raw_ostream &os) {
  llvm::json::OStream json(os, 2);
  json.object([&] {
    json.attribute("version", 1);
    json.attributeObject("step", [&] {
      json.attribute("batch", 1);
      json.attribute("new_tokens", sizes.seq);
      json.attribute("past", sizes.past);
    });
    json.attributeArray("remarks", [&] {
      for (const Remark &r : remarks)
        json.object([&] {
          auto text = [&](llvm::StringRef key, llvm::StringRef value) {
            json.attribute(key, llvm::json::fixUTF8(value));
          };
          text("severity", r.severity == Remark::Missed ? "missed" : "note");
          text("pass", r.pass);
          text("pattern", r.pattern);
          text("matched", r.matched);
          text("op", r.op);
          text("attribute", r.attribute);
          text("message", r.message);
          json.attributeArray("nodes", [&] {
            for (llvm::StringRef node : r.nodes)
              json.value(llvm::json::fixUTF8(node));
          });
          json.attribute("launches", r.launches);
          json.attribute("bytes", bytesAt(r.bytes, sizes));
        });
    });
  });
  os << "\n";
}

plan::RemarkT storedRemark(const Remark &r, const StepSizes &sizes) {
  plan::RemarkT stored;
  stored.pass = r.pass;
  stored.severity = r.severity == Remark::Missed ? "missed" : "note";
  stored.message = r.message;
  for (llvm::StringRef node : r.nodes)
    stored.nodes.push_back(node.str());
  stored.pattern = r.pattern;
  stored.matched = r.matched;
  stored.op = r.op;
  stored.attribute = r.attribute;
  stored.launches = r.launches;
  stored.bytes = bytesAt(r.bytes, sizes);
  return stored;
}

} // namespace gpt2c
