#include "schedule/cost/Tuning.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

namespace gpt2c {

static constexpr llvm::StringLiteral formatName = "gpt2c tuning 1";

llvm::Expected<TuningTable> TuningTable::parse(llvm::StringRef text) {
  auto failure = [](const char *what) {
    return llvm::createStringError(llvm::inconvertibleErrorCode(), what);
  };
  auto json = llvm::json::parse(text);
  if (!json)
    return json.takeError();
  const llvm::json::Object *file = json->getAsObject();
  if (!file || file->getString("format") != formatName)
    return failure("it is not of the format 'gpt2c tuning 1'");
  auto arch = file->getString("arch");
  const llvm::json::Array *entries = file->getArray("entries");
  if (!arch || !entries)
    return failure("it has no architecture or no entries");
  TuningTable table(arch->str());
  for (const llvm::json::Value &value : *entries) {
    const llvm::json::Object *entry = value.getAsObject();
    if (!entry || !entry->getString("key") || !entry->getString("choice"))
      return failure("an entry has no key or no choice");
    table.set(*entry->getString("key"),
              {entry->getString("choice")->str(), entry->getNumber("us").value_or(0),
               entry->getNumber("model_us").value_or(0)});
  }
  return table;
}

std::string TuningTable::text() const {
  llvm::json::Array entries;
  for (const auto &[key, entry] : entries_)
    entries.push_back(llvm::json::Object{{"key", key},
                                         {"choice", entry.choice},
                                         {"us", entry.microseconds},
                                         {"model_us", entry.modelMicroseconds}});
  llvm::json::Object file{{"format", formatName}, {"arch", arch_}, {"entries", std::move(entries)}};
  return llvm::formatv("{0:2}\n", llvm::json::Value(std::move(file))).str();
}

const TuningTable::Entry *TuningTable::find(llvm::StringRef key) const {
  auto it = entries_.find(key);
  return it == entries_.end() ? nullptr : &it->second;
}

size_t TunedChoices::choose(llvm::StringRef key, llvm::ArrayRef<std::string> candidates) {
  const TuningTable::Entry *entry = table_.find(key);
  if (!entry)
    return 0;
  auto it = llvm::find(candidates, entry->choice);
  (it == candidates.end() ? stale_ : used_).insert(key.str());
  return it == candidates.end() ? 0 : it - candidates.begin();
}

} // namespace gpt2c
