// Walks MindSpore's lists of kernels in the memory of this process, and writes them as lines:
// name, input types (dtype:object), output types, flags.
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>
#include "include/runtime/hardware_abstract/kernel_base/common_utils.h"
#include "include/runtime/hardware_abstract/kernel_base/kernel.h"
#include "include/runtime/hardware_abstract/kernel_base/kernel_factory.h"
#include "include/robin_hood.h"

using mindspore::kernel::FactoryBase;
using mindspore::kernel::KernelAttr;
using mindspore::kernel::KernelMod;

namespace {
// The base keeps its door closed; the derived factory has one map, first of its members.
struct Door : FactoryBase {
  static FactoryBase *Find(const std::string &key) { return GetInstance(key); }
  std::map<std::string, std::function<std::shared_ptr<KernelMod>()>> makers;
};

void Line(FILE *out, const std::string &name, const KernelAttr &attr) {
  fprintf(out, "%s\t", name.c_str());
  for (size_t i = 0; i < attr.GetInputSize(); i++) {
    const auto &input = attr.GetInputAttr(i);
    fprintf(out, "%s%d:%d", i ? "," : "", static_cast<int>(input.dtype), static_cast<int>(input.object_type));
  }
  fprintf(out, "\t");
  for (size_t i = 0; i < attr.GetOutputSize(); i++) {
    fprintf(out, "%s%d", i ? "," : "", static_cast<int>(attr.GetOutputAttr(i).dtype));
  }
  fprintf(out, "\t%s%s\n", attr.GetAllSame() ? "repeated" : "", attr.GetSkipCheck() ? "unchecked" : "");
}
}  // namespace

// The kernels of a factory, which is known by the mangled name of their class. -1: there is none.
extern "C" int walk_factory(const char *key, const char *path) {
  auto *factory = static_cast<Door *>(Door::Find(key));
  if (factory == nullptr) return -1;
  FILE *out = fopen(path, "a");
  int count = 0;
  for (const auto &[name, make] : factory->makers) {
    count++;
    std::vector<KernelAttr> known;
    try {
      auto *kept = new std::shared_ptr<KernelMod>(make());  // never freed: destructors ask the device
      known = (*kept)->GetOpSupport();
    } catch (const std::exception &) {
    }
    if (known.empty()) fprintf(out, "%s\t\t\tunchecked\n", name.c_str());
    for (const auto &attr : known) Line(out, name, attr);
  }
  fclose(out);
  return count;
}

// The keys of any std::map by string.
extern "C" int walk_names(void *map, const char *path, const char *what) {
  FILE *out = fopen(path, "a");
  int count = 0;
  for (const auto &item : *static_cast<std::map<std::string, char> *>(map)) {
    count++;
    fprintf(out, "%s\t\t\t%s\n", item.first.c_str(), what);
  }
  fclose(out);
  return count;
}

// The names of a factory's kernels alone: those for Ascend say nothing of types.
extern "C" int walk_factory_names(const char *key, const char *path, const char *what) {
  auto *factory = static_cast<Door *>(Door::Find(key));
  return factory == nullptr ? -1 : walk_names(&factory->makers, path, what);
}

// The adapters to operators of CANN, from the function that returns their map.
extern "C" int walk_adapters(void *get, const char *path, const char *what) {
  using Adapters = robin_hood::unordered_map<std::string, std::shared_ptr<void>>;
  FILE *out = fopen(path, "a");
  int count = 0;
  for (const auto &item : reinterpret_cast<Adapters &(*)()>(get)()) {
    count++;
    fprintf(out, "%s\t\t\t%s\n", item.first.c_str(), what);
  }
  fclose(out);
  return count;
}

// The kernels of the GPU's older list: a map of vectors of pairs, of which only the first part is looked at.
extern "C" int walk_older(void *map, const char *path) {
  using Older = std::map<std::string, std::vector<std::pair<KernelAttr, std::function<void *()>>>>;
  FILE *out = fopen(path, "a");
  int count = 0;
  for (const auto &[name, kernels] : *static_cast<Older *>(map)) {
    count++;
    for (const auto &kernel : kernels) Line(out, name, kernel.first);
  }
  fclose(out);
  return count;
}

// What MindSpore replaces by other primitives where a target lacks the kernel (IRBuilderFactory).
extern "C" int walk_expanded(void *registry, const char *path) {
  struct Handle { std::function<void *(void *)> make; };
  FILE *out = fopen(path, "a");
  int count = 0;
  for (const auto &item : *static_cast<robin_hood::unordered_map<std::string, Handle> *>(registry)) {
    count++;
    fprintf(out, "%s\t\t\texpanded\n", item.first.c_str());
  }
  fclose(out);
  return count;
}
