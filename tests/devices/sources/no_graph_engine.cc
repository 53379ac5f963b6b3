// The one method among those that need CANN's graph engine (ascend.py) that must give more than a zero: no format.
#include <string>
#include <vector>

namespace mindspore {
namespace kernel {
class KernelTensor;
}
namespace device::ascend {
struct AclConverter {
  std::string GetFormatFromInputAttrMap(const std::vector<kernel::KernelTensor *> &, const std::string &);
};
std::string AclConverter::GetFormatFromInputAttrMap(const std::vector<kernel::KernelTensor *> &, const std::string &) {
  return {};
}
}  // namespace device::ascend
}  // namespace mindspore
