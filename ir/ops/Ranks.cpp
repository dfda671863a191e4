#include "ir/ops/Ranks.h"

#include "ir/Error.h"
#include "ir/Group.h"

#include <utility>

namespace gpt2c {

AttrSpec ranksAttr() { return {"ranks", AttrKind::Int, std::nullopt, "how many run it"}; }

llvm::Error checkRanks(InferContext &c) {
  if (c.op().intAttr("ranks") < 1)
    return c.error("needs a rank");
  return llvm::Error::success();
}

llvm::Expected<int> rankOf(const EvalContext &c) {
  const Group *group = Group::current();
  const int64_t size = group ? group->size() : 1;
  if (size != c.op().intAttr("ranks"))
    return c.error("is for " + llvm::Twine(c.op().intAttr("ranks")) + " ranks, here are " +
                   llvm::Twine(size));
  return group ? group->rank() : 0;
}

llvm::Expected<Tensor> ofAllRanks(const EvalContext &c, const Tensor &mine) {
  if (auto rank = rankOf(c); !rank)
    return rank.takeError();
  llvm::SmallVector<int64_t, 4> shape(mine.shape());
  shape.insert(shape.begin(), c.op().intAttr("ranks"));
  if (shape[0] == 1)
    return mine.reshaped(shape);
  Tensor all(mine.dtype(), shape);
  if (llvm::Error e =
          Group::current()->gather(mine.byteArray(), {static_cast<char *>(all.raw()), all.bytes()}))
    return inContext(c.op().describe(), std::move(e));
  return all;
}

} // namespace gpt2c
