/* cuDNN's descriptors: they remember the sizes that MindSpore gives them, and tell them when it plans memory. */
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NO_MEMORY = 2, MOST_AXES = 8 };

static int made(void **p) { return (*p = calloc(1, 512)) ? SUCCESS : NO_MEMORY; }

#define CREATED_AND_DESTROYED(NAME)                             \
  int cudnnCreate##NAME(void **p) { return made(p); }           \
  int cudnnDestroy##NAME(void *p) { return free(p), SUCCESS; }
CREATED_AND_DESTROYED()
CREATED_AND_DESTROYED(ActivationDescriptor)
CREATED_AND_DESTROYED(ConvolutionDescriptor)
CREATED_AND_DESTROYED(DropoutDescriptor)
CREATED_AND_DESTROYED(FilterDescriptor)
CREATED_AND_DESTROYED(LRNDescriptor)
CREATED_AND_DESTROYED(OpTensorDescriptor)
CREATED_AND_DESTROYED(PoolingDescriptor)
CREATED_AND_DESTROYED(RNNDescriptor)
CREATED_AND_DESTROYED(ReduceTensorDescriptor)
CREATED_AND_DESTROYED(TensorDescriptor)

size_t cudnnGetVersion(void) { return 8500; }
const char *cudnnGetErrorString(int error) { return "an error of the stand-in for cuDNN"; }

/* Sizes of tensors and filters. */

struct tensor {
  int dtype, rank, dim[MOST_AXES];
};

/* Bytes of an element, by cudnnDataType_t: float, double, half, int8, int32, int8x4, uint8, uint8x4, int8x32, bfloat16 … */
static size_t width(int dtype) {
  static const size_t widths[] = {4, 8, 2, 1, 4, 4, 1, 4, 32, 2, 8, 1};
  return widths[dtype];
}

static int set(struct tensor *t, int dtype, int rank, const int *dim) {
  if (rank > MOST_AXES) return 9; /* not supported */
  t->dtype = dtype;
  t->rank = rank;
  memcpy(t->dim, dim, sizeof(int) * rank);
  return SUCCESS;
}

static int bytes(const struct tensor *t, size_t *size) {
  *size = t->rank ? width(t->dtype) : 0;
  for (int i = 0; i < t->rank; i++) *size *= t->dim[i];
  return SUCCESS;
}

int cudnnSetTensor4dDescriptor(struct tensor *t, int format, int dtype, int n, int c, int h, int w) {
  return set(t, dtype, 4, (int[]){n, c, h, w});
}
int cudnnSetTensorNdDescriptor(struct tensor *t, int dtype, int rank, const int *dim, const int *strides) {
  return set(t, dtype, rank, dim);
}
int cudnnSetTensorNdDescriptorEx(struct tensor *t, int format, int dtype, int rank, const int *dim) {
  return set(t, dtype, rank, dim);
}
int cudnnSetFilter4dDescriptor(struct tensor *t, int dtype, int format, int k, int c, int h, int w) {
  return set(t, dtype, 4, (int[]){k, c, h, w});
}
int cudnnSetFilterNdDescriptor(struct tensor *t, int dtype, int format, int rank, const int *dim) {
  return set(t, dtype, rank, dim);
}
int cudnnGetTensorSizeInBytes(const struct tensor *t, size_t *size) { return bytes(t, size); }
int cudnnGetFilterSizeInBytes(const struct tensor *t, size_t *size) { return bytes(t, size); }

/* Memory to work in: none is needed. */

int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void *handle, int mode, int operations, void *x, void *y, void *dy,
                                                      void *dz, void *dx, void *scale, void *activation, size_t *size) {
  return *size = 0, SUCCESS;
}
int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void *handle, int mode, int operations, void *x, void *z,
                                                             void *y, void *scale, void *activation, size_t *size) {
  return *size = 0, SUCCESS;
}
int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void *handle, int mode, int operations, void *activation,
                                                         void *x, size_t *size) {
  return *size = 0, SUCCESS;
}
int cudnnGetConvolutionForwardWorkspaceSize(void *handle, void *x, void *w, void *c, void *y, int algorithm, size_t *size) {
  return *size = 0, SUCCESS;
}
int cudnnGetConvolutionBackwardDataWorkspaceSize(void *handle, void *w, void *dy, void *c, void *dx, int algorithm,
                                                 size_t *size) {
  return *size = 0, SUCCESS;
}
int cudnnGetConvolutionBackwardFilterWorkspaceSize(void *handle, void *x, void *dy, void *c, void *dw, int algorithm,
                                                   size_t *size) {
  return *size = 0, SUCCESS;
}
int cudnnGetReductionIndicesSize(void *handle, void *reduce, void *a, void *c, size_t *size) { return *size = 0, SUCCESS; }
int cudnnGetReductionWorkspaceSize(void *handle, void *reduce, void *a, void *c, size_t *size) {
  return *size = 0, SUCCESS;
}
int cudnnDropoutGetStatesSize(void *handle, size_t *size) { return *size = 64, SUCCESS; }

/* The algorithm of a convolution: one result of struct cudnnConvolution…AlgoPerf_t (48 bytes), all zero: algorithm 0. */

#define ALGORITHM(NAME)                                                                                              \
  int NAME(void *handle, void *a, void *b, void *c, void *d, int wanted, int *found, void *results) {               \
    return *found = 1, memset(results, 0, 48), SUCCESS;                                                              \
  }
ALGORITHM(cudnnGetConvolutionForwardAlgorithm_v7)
ALGORITHM(cudnnGetConvolutionBackwardDataAlgorithm_v7)
ALGORITHM(cudnnGetConvolutionBackwardFilterAlgorithm_v7)
ALGORITHM(cudnnFindConvolutionForwardAlgorithm)
ALGORITHM(cudnnFindConvolutionBackwardDataAlgorithm)
ALGORITHM(cudnnFindConvolutionBackwardFilterAlgorithm)

/* Recurrent networks: the number of weights, which MindSpore holds against the size of the weight that it was given. */

struct rnn {
  int mode, bias, both_ways, input, hidden, layers;
};

int cudnnSetRNNDescriptor_v8(struct rnn *r, int algorithm, int mode, int bias, int direction, int input_mode, int dtype,
                             int precision, int math, int input, int hidden, int projection, int layers, void *dropout,
                             unsigned flags) {
  *r = (struct rnn){mode, bias, direction, input, hidden, layers};
  return SUCCESS;
}

int cudnnGetRNNParamsSize(void *handle, const struct rnn *r, const struct tensor *x, size_t *size, int dtype) {
  size_t gates = r->mode == 2 ? 4 : r->mode == 3 ? 3 : 1; /* LSTM, GRU, plain */
  size_t biases = r->bias == 0 ? 0 : r->bias == 2 ? 2 : 1; /* none, of input and of state, one of them */
  size_t ways = r->both_ways ? 2 : 1, weights = 0;
  for (int layer = 0; layer < r->layers; layer++) {
    size_t input = layer ? r->hidden * ways : r->input;
    weights += ways * gates * r->hidden * (input + r->hidden + biases);
  }
  *size = weights * width(dtype);
  return SUCCESS;
}
int cudnnGetRNNTrainingReserveSize(void *handle, void *r, int steps, void *x, size_t *size) { return *size = 0, SUCCESS; }
int cudnnGetRNNWorkspaceSize(void *handle, void *r, int steps, void *x, size_t *size) { return *size = 0, SUCCESS; }
