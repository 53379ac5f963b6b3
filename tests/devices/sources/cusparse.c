#include <stdlib.h>

int cusparseCreate(void **handle) { return (*handle = calloc(1, 256)) ? 0 : 2; }
int cusparseDestroy(void *handle) { return free(handle), 0; }
int cusparseCreateMatDescr(void **description) { return (*description = calloc(1, 256)) ? 0 : 2; }
int cusparseCreateCsrgemm2Info(void **info) { return (*info = calloc(1, 256)) ? 0 : 2; }
