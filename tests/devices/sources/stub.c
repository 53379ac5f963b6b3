/* What every name without a body of its own does: nothing, successfully.
 *
 * Where the environment variable DEVICE_STUBS_LOG names a file, each name is written there when it is first called, so
 * that a run can be held to what does have a body. */
#include <stdio.h>
#include <stdlib.h>

/* `record`: one byte that says whether the name was called, then the name. The stubs themselves (build.py) return 0. */
__attribute__((visibility("hidden"))) void stub_called(char *record) {
  if (record[0]) return;
  record[0] = 1;
  const char *path = getenv("DEVICE_STUBS_LOG");
  FILE *log = path ? fopen(path, "a") : NULL;
  if (!log) return;
  fprintf(log, "%s\n", record + 1);
  fclose(log);
}
