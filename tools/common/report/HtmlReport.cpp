#include "tools/common/report/HtmlReport.h"

#include "ir/Calculate.h"
#include "ir/ops/Common.h"
#include "runtime/plan/Expr.h"
#include "runtime/plan/PlanFile.h"
#include "templates/Embedded.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/JSON.h"

namespace gpt2c {

std::span<const EmbeddedFile> embeddedReportFiles();

namespace {

/// Names come from a model and may hold any bytes; JSON holds UTF-8 only.
std::string utf8(llvm::StringRef text) { return llvm::json::fixUTF8(text); }

/// What `out` becomes must be safe inside <script>, whatever names are in it, and inside XML: the
/// characters that mean something there stand in strings only, where JSON can spell them otherwise.
std::string escaped(llvm::StringRef json) {
  std::string out;
  for (char c : json)
    switch (c) {
    case '<':
      out += "\\u003c";
      break;
    case '>':
      out += "\\u003e";
      break;
    case '&':
      out += "\\u0026";
      break;
    default:
      out += c;
    }
  return out;
}

/// Symbols of an IR function, whose costs are polynomials, as a plan numbers them.
class SymbolTable {
public:
  int index(llvm::StringRef name) {
    auto [it, added] = numbers_.try_emplace(name, int(names_.size()));
    if (added)
      names_.push_back(name.str());
    return it->second;
  }
  llvm::ArrayRef<std::string> names() const { return names_; }

  plan::ExprT expr(const Dim &d) {
    return calculate(d, rt::ExprAlgebra{[&](llvm::StringRef symbol) { return index(symbol); }});
  }

private:
  llvm::StringMap<int> numbers_;
  std::vector<std::string> names_;
};

class DataWriter {
public:
  DataWriter(llvm::ArrayRef<GraphView> imported, llvm::StringRef title, const Module &module,
             const plan::PlanT &plan, llvm::raw_ostream &os)
      : imported_(imported), title_(title), module_(module), plan_(plan), json_(os) {}

  void run() {
    json_.object([&] {
      writeFacts();
      json_.attributeArray("remarks", [&] {
        for (const auto &r : plan_.remarks)
          json_.object([&] {
            json_.attribute("severity", utf8(r->severity));
            json_.attribute("pass", utf8(r->pass));
            json_.attribute("message", utf8(r->message));
            json_.attribute("stopped_by",
                            utf8(r->op + (r->attribute.empty() ? "" : "." + r->attribute)));
            json_.attribute("launches", r->launches);
            json_.attribute("bytes", r->bytes);
            strings("nodes", r->nodes);
          });
      });
      json_.attributeArray("graphs", [&] {
        for (auto &function : module_.functions)
          writeGraph(viewOf(*function));
      });
      json_.attributeArray("functions", [&] {
        for (const auto &function : plan_.functions)
          if (!function->steps.empty())
            writeFunction(*function);
        for (auto &function : module_.functions)
          if (!llvm::any_of(plan_.functions, [&](auto &f) {
                return f->name == function->name() && !f->steps.empty();
              }))
            writeHostFunction(viewOf(*function));
      });
    });
  }

private:
  void strings(llvm::StringRef key, llvm::ArrayRef<std::string> items) {
    json_.attributeArray(key, [&] {
      for (const std::string &item : items)
        json_.value(utf8(item));
    });
  }

  void writeFacts() {
    int64_t weights = 0;
    for (const auto &w : plan_.weights) // their bytes are counted when the plan is written
      weights += int64_t(rt::storedBytes(w->dtype, product(w->shape)).value_or(0));
    json_.attribute("model", utf8(title_.empty() ? plan_.model_name : title_));
    json_.attribute("compiler", utf8(plan_.compiler_version));
    json_.attribute("precision", utf8(plan_.precision));
    strings("flags", plan_.flags);
    json_.attribute("weights", int64_t(plan_.weights.size()));
    json_.attribute("weight_bytes", weights);
    if (const plan::KvPlanT *kv = plan_.kv.get())
      json_.attributeObject("kv", [&] {
        json_.attribute("layers", kv->layers);
        json_.attribute("heads", kv->heads);
        json_.attribute("head_dim", kv->head_dim);
        json_.attribute("dtype", plan::EnumNameDType(kv->dtype));
        json_.attribute("max_batch", kv->max_batch);
        json_.attribute("max_context", kv->max_context);
        json_.attribute("bytes_per_token", int64_t(kv->bytes_per_token));
        json_.attribute("bytes", int64_t(kv->bytes));
      });
    if (const plan::VerificationT *v = plan_.verification.get())
      json_.attributeObject("verification", [&] { writeVerification(*v); });
  }

  void writeVerification(const plan::VerificationT &v) {
    json_.attribute("mode", utf8(v.mode));
    json_.attributeArray("checks", [&] {
      for (const auto &check : v.checks)
        json_.object([&] {
          json_.attribute("what", utf8(check->what));
          json_.attribute("batch", check->batch);
          json_.attribute("tokens", check->tokens);
          json_.attribute("error", check->error);
          json_.attribute("tolerance", check->tolerance);
          if (check->error_in_double >= 0)
            json_.attribute("error_in_double", check->error_in_double);
        });
    });
    strings("unchecked", v.unchecked);
  }

  //===-- graphs ----------------------------------------------------------------------------===//

  /// Its nodes, those of the imported graph that went into each, and how many went nowhere.
  void writeGraph(const GraphView &graph) {
    Repeat repeat = findRepeat(graph);
    std::vector<const NodeView *> before;
    llvm::StringMap<std::vector<int>> byName; // imported nodes by the ONNX node they came from
    for (const GraphView &g : imported_)
      for (const NodeView &node : g.nodes) {
        for (const std::string &name : node.from)
          byName[name].push_back(int(before.size()));
        before.push_back(&node);
      }
    std::vector<bool> claimed(before.size());
    json_.object([&] {
      json_.attribute("name", utf8(graph.name));
      strings("arguments", graph.arguments);
      json_.attribute("ops", int64_t(graph.nodes.size()));
      json_.attribute("imported", int64_t(before.size()));
      json_.attributeObject("repeat", [&] {
        json_.attribute("first", int64_t(repeat.first));
        json_.attribute("period", int64_t(repeat.period));
        json_.attribute("count", int64_t(repeat.count));
      });
      json_.attributeArray("nodes", [&] {
        for (auto [i, node] : llvm::enumerate(graph.nodes)) {
          std::vector<int> members;
          for (const std::string &name : node.from)
            for (int m : byName.lookup(name))
              if (!claimed[m]) {
                claimed[m] = true;
                members.push_back(m);
              }
          llvm::sort(members);
          if (repeat.representative(i) == i)
            writeNode(int(i), node, repeat, members, before);
        }
      });
      // What no op of this function came from: shapes, masks and positions that are known now.
      llvm::MapVector<llvm::StringRef, int64_t> gone;
      for (size_t i = 0; i < before.size(); ++i)
        if (!claimed[i] && before[i]->title != "return")
          ++gone[before[i]->title];
      json_.attributeArray("gone", [&] {
        for (const auto &[title, count] : gone)
          json_.array([&] {
            json_.value(utf8(title));
            json_.value(count);
          });
      });
    });
  }

  void writeLines(const NodeView &node) {
    json_.attribute("title", utf8(node.title));
    strings("attributes", node.attributes);
    strings("constants", node.constants);
    strings("types", node.types);
  }

  void writeNode(int index, const NodeView &node, const Repeat &repeat, llvm::ArrayRef<int> members,
                 llvm::ArrayRef<const NodeView *> before) {
    json_.object([&] {
      json_.attribute("id", index);
      writeLines(node);
      strings("from", node.from);
      json_.attributeArray("inputs", [&] {
        std::vector<int> seen;
        for (int input : node.inputs) {
          int shown = input < 0 ? input : int(repeat.representative(size_t(input)));
          // What a layer gives to the next one would point upwards.
          if (shown < index && !llvm::is_contained(seen, shown)) {
            seen.push_back(shown);
            json_.value(shown);
          }
        }
      });
      json_.attributeArray("members", [&] {
        for (int m : members)
          json_.object([&] {
            writeLines(*before[m]);
            strings("from", before[m]->from);
            json_.attributeArray("inputs", [&] {
              for (auto [place, other] : llvm::enumerate(members))
                if (other < m && llvm::is_contained(before[m]->inputs, other))
                  json_.value(int64_t(place));
            });
          });
      });
    });
  }

  //===-- steps and memory ------------------------------------------------------------------===//

  void code(const plan::ExprT &e) {
    json_.array([&] {
      for (int64_t c : e.code)
        json_.value(c);
    });
  }
  void code(llvm::StringRef key, const plan::ExprT *e) {
    if (!e)
      return;
    json_.attributeBegin(key);
    code(*e);
    json_.attributeEnd();
  }

  void writeFunction(const plan::FunctionT &function) {
    json_.object([&] {
      json_.attribute("name", utf8(function.name));
      json_.attribute("device", "gpu");
      json_.attributeArray("symbols", [&] {
        for (const auto &s : function.symbols)
          json_.object([&] {
            json_.attribute("name", utf8(s->name));
            json_.attribute("min", s->min);
            json_.attribute("max", s->max);
          });
      });
      json_.attributeArray("steps", [&] {
        for (const auto &step : function.steps)
          json_.object([&] {
            json_.attribute("op", utf8(step->op));
            json_.attribute("kernel", utf8(plan_.kernels[step->kernel]->name));
            json_.attributeArray("grid", [&] {
              for (const auto &g : step->grid)
                code(*g);
            });
            json_.attributeArray("block", [&] {
              for (uint32_t b : step->block)
                json_.value(int64_t(b));
            });
            json_.attribute("shared", int64_t(step->shared_bytes));
            code("bytes", step->bytes.get());
            code("flops", step->flops.get());
            names(step->nodes);
          });
      });
      json_.attribute("arena", int64_t(function.arena_bytes));
      json_.attribute("scratch", int64_t(function.scratch_bytes));
      json_.attributeArray("buffers", [&] {
        for (const auto &b : function.buffers)
          json_.array([&] {
            json_.value(utf8(b->name));
            json_.value(int64_t(b->offset));
            json_.value(int64_t(b->bytes));
            json_.value(b->first_step);
            json_.value(b->last_step);
          });
      });
    });
  }

  /// A few of the ONNX nodes; the graph has them all.
  void names(llvm::ArrayRef<std::string> nodes) {
    strings("nodes", nodes.take_front(4));
    if (nodes.size() > 4)
      json_.attribute("more", int64_t(nodes.size() - 4));
  }

  void writeHostFunction(const GraphView &graph) {
    SymbolTable symbols;
    json_.object([&] {
      json_.attribute("name", utf8(graph.name));
      json_.attribute("device", "cpu");
      json_.attributeArray("steps", [&] {
        for (const NodeView &node : graph.nodes)
          if (node.title != "return")
            json_.object([&] {
              json_.attribute("op", utf8(node.title));
              plan::ExprT bytes = symbols.expr(node.cost.bytes);
              plan::ExprT flops = symbols.expr(node.cost.flops);
              code("bytes", &bytes);
              code("flops", &flops);
              names(node.from);
            });
      });
      json_.attributeArray("symbols", [&] {
        for (const std::string &name : symbols.names())
          json_.object([&] {
            json_.attribute("name", utf8(name));
            json_.attribute("min", 0);
            json_.attribute("max", int64_t(1) << 31);
          });
      });
    });
  }

  llvm::ArrayRef<GraphView> imported_;
  llvm::StringRef title_;
  const Module &module_;
  const plan::PlanT &plan_;
  llvm::json::OStream json_;
};

std::string_view file(std::string_view name) {
  for (const EmbeddedFile &f : embeddedReportFiles())
    if (f.name == name)
      return f.text;
  assert(false && "the file is embedded at build");
  return {};
}

} // namespace

HtmlReport::HtmlReport(const Module &imported, std::string title) : title_(std::move(title)) {
  for (auto &function : imported.functions)
    imported_.push_back(viewOf(*function));
}

void HtmlReport::write(const Module &module, const plan::PlanT &plan, llvm::raw_ostream &os) const {
  std::string data;
  llvm::raw_string_ostream json(data);
  DataWriter(imported_, title_, module, plan, json).run();
  llvm::StringRef page = file("page.html");
  for (auto [mark, content] :
       {std::pair<llvm::StringRef, llvm::StringRef>("@STYLE@", file("page.css")),
        {"@DATA@", data},
        {"@SCRIPT@", file("page.js")}}) {
    auto [before, after] = page.split(mark);
    os << before << (mark == "@DATA@" ? escaped(content) : content.str());
    page = after;
  }
  os << page;
}

} // namespace gpt2c
