/* A CUDA runtime whose one device is the memory of this machine. Streams are in order because calls are done at once. */
#include <stdlib.h>
#include <string.h>

#define MEMORY (8ull << 30)

enum { SUCCESS = 0, OUT_OF_MEMORY = 2 };

static int allocate(void **p, size_t bytes) {
  return posix_memalign(p, 512, bytes ? bytes : 512) ? OUT_OF_MEMORY : SUCCESS;
}

static int handle(void **h) { return (*h = calloc(1, 64)) ? SUCCESS : OUT_OF_MEMORY; }

int cudaGetDeviceCount(int *count) { return *count = 1, SUCCESS; }

/* The fields of struct cudaDeviceProp (CUDA 11, 728 bytes) that MindSpore reads, by their place in it. */
int cudaGetDeviceProperties(char *p, int device) {
  memset(p, 0, 728);
  strcpy(p, "no device: host memory");
  *(size_t *)(p + 288) = MEMORY;       /* totalGlobalMem */
  *(int *)(p + 308) = 32;              /* warpSize */
  *(int *)(p + 320) = 1024;            /* maxThreadsPerBlock */
  memcpy(p + 324, (int[]){1024, 1024, 64}, 12);             /* maxThreadsDim */
  memcpy(p + 336, (int[]){2147483647, 65535, 65535}, 12);   /* maxGridSize */
  *(int *)(p + 360) = 8;               /* major: a compute capability that MindSpore's kernels are made for */
  *(int *)(p + 364) = 0;               /* minor */
  *(int *)(p + 388) = 108;             /* multiProcessorCount */
  return SUCCESS;
}

int cudaMemGetInfo(size_t *free_bytes, size_t *total) {
  *free_bytes = MEMORY / 4 * 3;
  *total = MEMORY;
  return SUCCESS;
}

int cudaMalloc(void **p, size_t bytes) { return allocate(p, bytes); }
int cudaFree(void *p) { return free(p), SUCCESS; }
int cudaHostAlloc(void **p, size_t bytes, unsigned flags) { return allocate(p, bytes); }
int cudaFreeHost(void *p) { return free(p), SUCCESS; }
int cudaMemcpy(void *to, const void *from, size_t bytes, int kind) { return memmove(to, from, bytes), SUCCESS; }
int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) {
  return memmove(to, from, bytes), SUCCESS;
}
int cudaMemset(void *p, int value, size_t bytes) { return memset(p, value, bytes), SUCCESS; }
int cudaMemsetAsync(void *p, int value, size_t bytes, void *stream) { return memset(p, value, bytes), SUCCESS; }
int cudaStreamCreate(void **stream) { return handle(stream); }
int cudaStreamCreateWithFlags(void **stream, unsigned flags) { return handle(stream); }
int cudaStreamCreateWithPriority(void **stream, unsigned flags, int priority) { return handle(stream); }
int cudaStreamDestroy(void *stream) { return free(stream), SUCCESS; }
int cudaEventCreate(void **event) { return handle(event); }
int cudaEventCreateWithFlags(void **event, unsigned flags) { return handle(event); }
int cudaEventDestroy(void *event) { return free(event), SUCCESS; }
int cudaEventElapsedTime(float *milliseconds, void *from, void *to) { return *milliseconds = 0, SUCCESS; }
const char *cudaGetErrorName(int error) { return "cudaError"; }
const char *cudaGetErrorString(int error) { return "an error of the stand-in for CUDA"; }
