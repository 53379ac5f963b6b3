/* A library OLD whose functions are those of NEW. What NEW does not have says so when it is first called. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#define HIDDEN __attribute__((visibility("hidden")))

extern HIDDEN const char *const shim_names[];
extern HIDDEN void *shim_targets[];
extern HIDDEN const int shim_count;
extern HIDDEN void shim_lacking(void);

HIDDEN long shim_say_lacking(int number) {
  static const char *said;
  if (said != shim_names[number]) fprintf(stderr, "%s has no %s, which %s had\n", NEW, shim_names[number], OLD);
  said = shim_names[number];
  return NOT_SUPPORTED;
}

__attribute__((constructor)) static void find_targets(void) {
  void *library = dlopen(NEW, RTLD_LAZY | RTLD_LOCAL);
  if (!library) fprintf(stderr, "%s stands for %s, which cannot be loaded: %s\n", OLD, NEW, dlerror());
  for (int i = 0; i < shim_count; i++) {
    void *target = library ? dlsym(library, shim_names[i]) : NULL;
    shim_targets[i] = target ? target : (void *)shim_lacking;
  }
}
