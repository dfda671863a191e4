// e2e_golden FIELD FILE: prints an array of integers in a JSON file, separated by commas.
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

static int fail(const llvm::Twine &message) {
  llvm::errs() << "e2e_golden: " << message << "\n";
  return 1;
}

int main(int argc, char **argv) {
  if (argc != 3)
    return fail("usage: e2e_golden FIELD FILE");
  auto buffer = llvm::MemoryBuffer::getFile(argv[2]);
  if (!buffer)
    return fail(llvm::Twine(argv[2]) + ": " + buffer.getError().message());
  auto json = llvm::json::parse((*buffer)->getBuffer());
  if (!json)
    return fail(llvm::Twine(argv[2]) + ": " + llvm::toString(json.takeError()));
  const llvm::json::Object *root = json->getAsObject();
  const llvm::json::Array *array = root ? root->getArray(argv[1]) : nullptr;
  if (!array || array->empty())
    return fail(llvm::Twine(argv[2]) + " has no array '" + argv[1] + "'");
  llvm::StringRef separator = "";
  for (const llvm::json::Value &v : *array) {
    auto i = v.getAsInteger();
    if (!i)
      return fail(llvm::Twine(argv[2]) + ": '" + argv[1] + "' holds something else than integers");
    llvm::outs() << separator << *i;
    separator = ",";
  }
  llvm::outs() << "\n";
  return 0;
}
