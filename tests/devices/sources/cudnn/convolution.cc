// Convolution of images and both of its gradients, each straight from its definition.
#include <vector>

#include "descriptors.h"

// For each pair of an output and an input that one weight joins: body(x, w, y), their places.
template <typename F>
static void for_each_product(const Convolution &c, const Tensor &x, const Tensor &w, const Tensor &y, F body) {
  int groups = c.groups ? c.groups : 1, outputs = y.dim[1] / groups;
  for (int n = 0; n < y.dim[0]; n++)
    for (int k = 0; k < y.dim[1]; k++)
      for (int i = 0; i < w.dim[1]; i++) {
        int channel = k / outputs * w.dim[1] + i;
        for (int r = 0; r < w.dim[2]; r++)
          for (int s = 0; s < w.dim[3]; s++) {
            size_t of_w = w.at(k, i, r, s);
            for (int h = 0; h < y.dim[2]; h++) {
              int row = h * c.stride[0] - c.pad[0] + r * c.dilation[0];
              if (row < 0 || row >= x.dim[2]) continue;
              for (int v = 0; v < y.dim[3]; v++) {
                int column = v * c.stride[1] - c.pad[1] + s * c.dilation[1];
                if (column >= 0 && column < x.dim[3]) body(x.at(n, channel, row, column), of_w, y.at(n, k, h, v));
              }
            }
          }
      }
}

static size_t elements(const Tensor &t) { return size_t(t.dim[0]) * t.dim[1] * t.dim[2] * t.dim[3]; }

extern "C" {

#define FROM_SUMS(RESULT, DESCRIPTION, SUM)                                                            \
  return with_type(DESCRIPTION->dtype, [&](auto *type) {                                               \
    using T = std::remove_pointer_t<decltype(type)>;                                                   \
    std::vector<double> sums(elements(*DESCRIPTION), 0);                                               \
    for_each_product(*c, *x_, *w_, *y_, [&](size_t x_at, size_t w_at, size_t y_at) { SUM; });          \
    double a = factor(alpha, DESCRIPTION->dtype), b = factor(beta, DESCRIPTION->dtype);                \
    for (size_t i = 0; i < sums.size(); i++) blend(((T *)RESULT)[i], sums[i], a, b);                   \
    return int(SUCCESS);                                                                               \
  });

int cudnnConvolutionForward(void *handle, const void *alpha, const Tensor *x_, const void *x, const Tensor *w_,
                            const void *w, const Convolution *c, int algorithm, void *scratch, size_t size,
                            const void *beta, const Tensor *y_, void *y) {
  FROM_SUMS(y, y_, sums[y_at] += double(((const T *)x)[x_at]) * ((const T *)w)[w_at])
}

int cudnnConvolutionBackwardData(void *handle, const void *alpha, const Tensor *w_, const void *w, const Tensor *y_,
                                 const void *dy, const Convolution *c, int algorithm, void *scratch, size_t size,
                                 const void *beta, const Tensor *x_, void *dx) {
  FROM_SUMS(dx, x_, sums[x_at] += double(((const T *)dy)[y_at]) * ((const T *)w)[w_at])
}

int cudnnConvolutionBackwardFilter(void *handle, const void *alpha, const Tensor *x_, const void *x, const Tensor *y_,
                                   const void *dy, const Convolution *c, int algorithm, void *scratch, size_t size,
                                   const void *beta, const Tensor *w_, void *dw) {
  FROM_SUMS(dw, w_, sums[w_at] += double(((const T *)dy)[y_at]) * ((const T *)x)[x_at])
}
}
