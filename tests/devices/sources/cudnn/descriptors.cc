// cuDNN's descriptors: they remember what MindSpore tells them, and give the sizes that it plans memory with.
#include "descriptors.h"

#include <cstdlib>

extern "C" {

#define CREATED_AND_DESTROYED(NAME)                                                                 \
  int cudnnCreate##NAME(void **p) { return (*p = calloc(1, 512)) ? SUCCESS : NO_MEMORY; }           \
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

// Tensors and filters.

// Bytes of an element, by cudnnDataType_t: float, double, half, int8, int32, int8x4, uint8, uint8x4, int8x32, bfloat16 ...
static size_t width(int dtype) {
  static const size_t widths[] = {4, 8, 2, 1, 4, 4, 1, 4, 32, 2, 8, 1};
  return widths[dtype];
}

static int set(Tensor *t, int dtype, int rank, const int *dim, const int *stride, int format) {
  if (rank > MOST_AXES) return NOT_SUPPORTED;
  t->dtype = dtype;
  t->rank = rank;
  memcpy(t->dim, dim, sizeof(int) * rank);
  if (stride) {
    memcpy(t->stride, stride, sizeof(int) * rank);
    return SUCCESS;
  }
  int step = 1;
  if (format == CHANNELS_LAST) t->stride[1] = 1, step = dim[1];
  for (int axis = rank; axis-- > 0;)
    if (format != CHANNELS_LAST || axis != 1) t->stride[axis] = step, step *= dim[axis];
  return SUCCESS;
}

static int bytes(const Tensor *t, size_t *size) {
  *size = t->rank ? width(t->dtype) : 0;
  for (int i = 0; i < t->rank; i++) *size *= t->dim[i];
  return SUCCESS;
}

int cudnnSetTensor4dDescriptor(Tensor *t, int format, int dtype, int n, int c, int h, int w) {
  const int dim[] = {n, c, h, w};
  return set(t, dtype, 4, dim, nullptr, format);
}
int cudnnSetTensorNdDescriptor(Tensor *t, int dtype, int rank, const int *dim, const int *strides) {
  return set(t, dtype, rank, dim, strides, 0);
}
int cudnnSetTensorNdDescriptorEx(Tensor *t, int format, int dtype, int rank, const int *dim) {
  return set(t, dtype, rank, dim, nullptr, format);
}
int cudnnSetFilter4dDescriptor(Tensor *t, int dtype, int format, int k, int c, int h, int w) {
  const int dim[] = {k, c, h, w};
  return set(t, dtype, 4, dim, nullptr, format);
}
int cudnnSetFilterNdDescriptor(Tensor *t, int dtype, int format, int rank, const int *dim) {
  return set(t, dtype, rank, dim, nullptr, format);
}
int cudnnGetTensorSizeInBytes(const Tensor *t, size_t *size) { return bytes(t, size); }
int cudnnGetFilterSizeInBytes(const Tensor *t, size_t *size) { return bytes(t, size); }

// Operations.

int cudnnSetConvolutionNdDescriptor(Convolution *c, int rank, const int *pad, const int *stride, const int *dilation,
                                    int mode, int dtype) {
  *c = {{}, {}, {}, c->groups};
  if (rank != 2) return NOT_SUPPORTED;
  for (int i = 0; i < rank; i++) c->pad[i] = pad[i], c->stride[i] = stride[i], c->dilation[i] = dilation[i];
  return SUCCESS;
}
int cudnnSetConvolution2dDescriptor(Convolution *c, int pad_h, int pad_w, int stride_h, int stride_w, int dilation_h,
                                    int dilation_w, int mode, int dtype) {
  *c = {{pad_h, pad_w}, {stride_h, stride_w}, {dilation_h, dilation_w}, c->groups};
  return SUCCESS;
}
int cudnnSetConvolutionGroupCount(Convolution *c, int groups) { return c->groups = groups, SUCCESS; }
int cudnnSetPoolingNdDescriptor(Pooling *p, int mode, int nan, int rank, const int *window, const int *pad,
                                const int *stride) {
  *p = {mode};
  if (rank != 2) return NOT_SUPPORTED;
  for (int i = 0; i < rank; i++) p->window[i] = window[i], p->pad[i] = pad[i], p->stride[i] = stride[i];
  return SUCCESS;
}
int cudnnSetActivationDescriptor(Activation *a, int mode, int nan, double coefficient) {
  *a = {mode, coefficient};
  return SUCCESS;
}
int cudnnSetOpTensorDescriptor(int *operation, int what, int dtype, int nan) { return *operation = what, SUCCESS; }
int cudnnSetReduceTensorDescriptor(int *fold, int what, int dtype, int nan, int indices, int index_dtype) {
  return *fold = what, SUCCESS;
}

// Memory to work in: none is needed.

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

// The algorithm of a convolution: one result of struct cudnnConvolution…AlgoPerf_t (48 bytes), all zero: algorithm 0.

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

// Recurrent networks: the number of weights, which MindSpore holds against the size of the weight that it was given.

int cudnnSetRNNDescriptor_v8(Rnn *r, int algorithm, int mode, int bias, int direction, int input_mode, int dtype,
                             int precision, int math, int input, int hidden, int projection, int layers, void *dropout,
                             unsigned flags) {
  *r = {mode, bias, direction, input, hidden, layers};
  return SUCCESS;
}

int cudnnGetRNNParamsSize(void *handle, const Rnn *r, const Tensor *x, size_t *size, int dtype) {
  size_t gates = r->mode == 2 ? 4 : r->mode == 3 ? 3 : 1; // LSTM, GRU, plain
  size_t biases = r->bias == 0 ? 0 : r->bias == 2 ? 2 : 1; // none, of input and of state, one of them
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
}
