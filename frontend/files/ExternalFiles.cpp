#include "frontend/files/ExternalFiles.h"
#include "ir/Error.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

namespace gpt2c {

namespace fs = llvm::sys::fs;
namespace path = llvm::sys::path;

/// True when the normalised absolute path `file` lies below `folder`.
static bool isBelow(llvm::StringRef file, llvm::StringRef folder) {
  auto f = path::begin(file), fEnd = path::end(file);
  for (auto d = path::begin(folder), dEnd = path::end(folder); d != dEnd; ++d, ++f)
    if (f == fEnd || *f != *d)
      return false;
  return f != fEnd;
}

/// In the cache of Hugging Face's tools <root>/snapshots/<revision>/.. is links to files of
/// <root>/blobs: whether `file` is such a file for a model in `folder`.
static bool isBlobOfCache(llvm::StringRef file, llvm::StringRef folder) {
  llvm::SmallString<256> root(folder);
  while (path::has_parent_path(root) && path::filename(root) != "snapshots")
    path::remove_filename(root);
  if (path::filename(root) != "snapshots")
    return false;
  path::remove_filename(root);
  path::append(root, "blobs");
  return path::parent_path(file) == root;
}

llvm::Expected<std::shared_ptr<const llvm::MemoryBuffer>>
ExternalFiles::open(llvm::StringRef location) {
  auto &file = files_[location];
  if (file)
    return file;
  auto invalid = [&](const llvm::Twine &why) {
    return makeError(ExitCode::InvalidModel, "external data '" + location + "' " + why);
  };
  if (location.empty() || location.contains('\0'))
    return invalid("has no valid file name");
  bool climbs =
      llvm::is_contained(llvm::make_range(path::begin(location), path::end(location)), "..");
  if (path::is_absolute(location) || climbs)
    return invalid("must be a path below the model's folder");

  llvm::SmallString<256> folder, joined(folder_.empty() ? "." : folder_), resolved;
  if (std::error_code e = fs::real_path(joined, folder))
    return invalid("cannot be looked up in '" + joined + "': " + e.message());
  path::append(joined, location);
  if (std::error_code e = fs::real_path(joined, resolved))
    return invalid("(" + joined + ") cannot be read: " + e.message());
  if (!isBelow(resolved, folder) && !isBlobOfCache(resolved, folder))
    return invalid("leads out of the model's folder, to '" + resolved +
                   "': copy model and data into one folder (cp -L copies what links lead to)");
  if (!fs::is_regular_file(resolved))
    return invalid("is not a file");
  auto buffer = llvm::MemoryBuffer::getFile(resolved, /*IsText=*/false,
                                            /*RequiresNullTerminator=*/false);
  if (!buffer)
    return invalid("(" + joined + ") cannot be read: " + buffer.getError().message());
  if (opened_)
    if (llvm::Error e = opened_(resolved))
      return e;
  file = std::move(*buffer);
  return file;
}

} // namespace gpt2c
