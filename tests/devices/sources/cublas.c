#include <stdlib.h>

int cublasCreate_v2(void **handle) { return (*handle = calloc(1, 256)) ? 0 : 3; }
int cublasDestroy_v2(void *handle) { return free(handle), 0; }
int cublasGetMathMode(void *handle, int *mode) { return *mode = 0, 0; }
