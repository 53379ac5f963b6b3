#include <stdlib.h>

int cusolverDnCreate(void **handle) { return (*handle = calloc(1, 256)) ? 0 : 2; }
int cusolverDnDestroy(void *handle) { return free(handle), 0; }
int cusolverDnCreateGesvdjInfo(void **info) { return (*info = calloc(1, 256)) ? 0 : 2; }
