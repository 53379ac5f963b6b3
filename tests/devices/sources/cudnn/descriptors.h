// What cuDNN's descriptors hold, and what its functions have in common.
#pragma once
#include <cstddef>
#include <cstring>

enum { SUCCESS = 0, NO_MEMORY = 2, NOT_SUPPORTED = 9 };
enum { MOST_AXES = 8, CHANNELS_LAST = 1 };
enum DataType { FLOAT = 0, DOUBLE = 1, HALF = 2, INT32 = 4 };

struct Tensor {
  int dtype, rank, dim[MOST_AXES], stride[MOST_AXES];
  size_t at(int n, int c, int h = 0, int w = 0) const {
    return size_t(n) * stride[0] + size_t(c) * stride[1] + size_t(h) * stride[2] + size_t(w) * stride[3];
  }
};
struct Convolution {
  int pad[2], stride[2], dilation[2], groups;
};
struct Pooling {
  int mode, window[2], pad[2], stride[2];
};
struct Activation {
  int mode;
  double coefficient;
};
struct Rnn {
  int mode, bias, both_ways, input, hidden, layers;
};

// `body` with a null pointer to the element type; the status that it returns.
template <typename F>
int with_type(int dtype, F body) {
  if (dtype == FLOAT) return body((float *)nullptr);
  if (dtype == DOUBLE) return body((double *)nullptr);
  if (dtype == HALF) return body((_Float16 *)nullptr);
  return NOT_SUPPORTED;
}

// A factor alpha or beta: a double for doubles, else a float.
inline double factor(const void *p, int dtype) { return dtype == DOUBLE ? *(const double *)p : *(const float *)p; }

// What stands in a result: alpha times what was computed, and beta times what stood there, which counts only if beta does.
template <typename T>
void blend(T &to, double value, double alpha, double beta) {
  to = T(alpha * value + (beta == 0 ? 0 : beta * double(to)));
}
