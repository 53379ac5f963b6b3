// The two names of CANN that must give more than a zero.
#include <map>
#include <string>

namespace ge {
struct StatusFactory {
  std::map<unsigned, std::string> messages;
  static StatusFactory *Instance();
};
StatusFactory *StatusFactory::Instance() {
  static StatusFactory factory;
  return &factory;
}
}  // namespace ge

extern "C" const char *aclrtGetSocName() { return "Ascend910B1"; }
