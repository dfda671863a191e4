#include "templates/decode_step/common/DecodeKernels.h"

namespace gpt2c {

using namespace persistent;

llvm::ArrayRef<const DecodeKernel *> decodeKernels() {
  static const DecodeKernel *const kernels[] = {&decodeClustersKernel(), &decodeSharesKernel(),
                                                &decodeStagesKernel()};
  return kernels;
}

bool suitPages(const DecodeProblem &p) {
  return !p.paged ||
         (p.pageType == p.type && p.pageTokens == clusterPageTokens && p.pageColumns > 0);
}

int64_t clusterRows(int64_t rows) { return rows == 1 ? 1 : std::max<int64_t>(rows, clusterBlocks); }

int64_t clusterSlots(const DecodeProblem &p) {
  const DecoderShape &s = *p.shape;
  const int64_t slot = unitRows * s.width * byteSize(s.weights),
                round = 2 * s.heads * clusterKeys * s.headDim * byteSize(s.type),
                groups = (clusterRows(p.rows) + clusterBlocks - 1) / clusterBlocks,
                others = std::max<int64_t>(28, 4 + 15 * groups) * 1024;
  return (int64_t(p.target.sharedBytes) - 1024 - others) / round * round / slot;
}

} // namespace gpt2c
