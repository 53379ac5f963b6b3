// Notes where the std::maps of one library (NOTE_MAPS_OF) stand while they are filled: some lists of kernels have no name
// that leads to them. To be preloaded.
#include <bits/stl_tree.h>
#include <dlfcn.h>
#include <malloc.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>

namespace {
struct Note {
  size_t items;
  size_t bytes;  // of one item: tells maps of different values apart
};
std::unordered_map<void *, Note> &Notes() {
  static auto *notes = new std::unordered_map<void *, Note>();
  return *notes;
}
std::mutex &Lock() {
  static auto *lock = new std::mutex();
  return *lock;
}
}  // namespace

namespace std {
void _Rb_tree_insert_and_rebalance(const bool left, _Rb_tree_node_base *item, _Rb_tree_node_base *parent,
                                   _Rb_tree_node_base &head) throw() {
  using Real = void (*)(bool, _Rb_tree_node_base *, _Rb_tree_node_base *, _Rb_tree_node_base &);
  static const auto real =
    reinterpret_cast<Real>(dlsym(RTLD_NEXT, "_ZSt29_Rb_tree_insert_and_rebalancebPSt18_Rb_tree_node_baseS0_RS_"));
  static const char *const library = getenv("NOTE_MAPS_OF");
  Dl_info caller;
  if (library && dladdr(__builtin_return_address(0), &caller) && caller.dli_fname &&
      strstr(caller.dli_fname, library)) {
    std::lock_guard<std::mutex> locked(Lock());
    auto &note = Notes()[&head];
    note.items++;
    note.bytes = malloc_usable_size(item);
  }
  real(left, item, parent, head);
}
}  // namespace std

// The next map after `previous` (null: the first) whose items take `bytes`, with `least` of them or more; null at the end.
extern "C" void *noted_map(void *previous, size_t bytes, size_t least) {
  bool found = previous == nullptr;
  for (const auto &[head, note] : Notes()) {
    void *map = static_cast<char *>(head) - 8;  // the comparison stands in front of the head
    if (found && note.bytes == bytes && note.items >= least) return map;
    if (map == previous) found = true;
  }
  return nullptr;
}
