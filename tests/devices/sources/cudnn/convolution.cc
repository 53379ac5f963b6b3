// Convolution of images and both of its gradients, each straight from its definition.
#include <algorithm>
#include <vector>

#include "descriptors.h"

// A row of products: for i below `count`, a weight joins the input at x + i * x_step with the output at y + i * y_step.
struct Row {
  size_t x, w, y;
  int x_step, y_step, count;
};

// For each row of all products: body(row).
template <typename F>
static void for_each_row(const Convolution &c, const Tensor &x, const Tensor &w, const Tensor &y, F body) {
  int groups = c.groups ? c.groups : 1, outputs = y.dim[1] / groups;
  for (int n = 0; n < y.dim[0]; n++)
    for (int k = 0; k < y.dim[1]; k++)
      for (int i = 0; i < w.dim[1]; i++)
        for (int r = 0; r < w.dim[2]; r++)
          for (int s = 0; s < w.dim[3]; s++) {
            // The columns v of the output for which 0 <= v * stride + shift < width of the input.
            int shift = s * c.dilation[1] - c.pad[1], first = shift < 0 ? (-shift + c.stride[1] - 1) / c.stride[1] : 0;
            int end = std::min((x.dim[3] - 1 - shift + c.stride[1]) / c.stride[1], y.dim[3]);
            if (x.dim[3] - 1 < shift || first >= end) continue;
            for (int h = 0; h < y.dim[2]; h++) {
              int row = h * c.stride[0] - c.pad[0] + r * c.dilation[0];
              if (row < 0 || row >= x.dim[2]) continue;
              size_t in = x.at(n, k / outputs * w.dim[1] + i, row, first * c.stride[1] + shift);
              body(Row{in, w.at(k, i, r, s), y.at(n, k, h, first), c.stride[1] * x.stride[3], y.stride[3], end - first});
            }
          }
}

static size_t elements(const Tensor &t) { return size_t(t.dim[0]) * t.dim[1] * t.dim[2] * t.dim[3]; }

extern "C" {

// The result is made of sums, which DO gets row by row; the other two tensors are `A` and `B`, of type T.
#define FROM_SUMS(RESULT, DESCRIPTION, A, B, DO)                                                       \
  return with_type(DESCRIPTION->dtype, [&](auto *type) {                                               \
    using T = std::remove_pointer_t<decltype(type)>;                                                   \
    const T *a = (const T *)A, *b = (const T *)B;                                                      \
    std::vector<double> sums(elements(*DESCRIPTION), 0);                                               \
    for_each_row(*c, *x_, *w_, *y_, [&](const Row &row) { DO });                                       \
    double old = factor(beta, DESCRIPTION->dtype), share = factor(alpha, DESCRIPTION->dtype);          \
    for (size_t i = 0; i < sums.size(); i++) blend(((T *)RESULT)[i], sums[i], share, old);             \
    return int(SUCCESS);                                                                               \
  });

int cudnnConvolutionForward(void *handle, const void *alpha, const Tensor *x_, const void *x, const Tensor *w_,
                            const void *w, const Convolution *c, int algorithm, void *scratch, size_t size,
                            const void *beta, const Tensor *y_, void *y) {
  FROM_SUMS(y, y_, x, w, {
    double weight = b[row.w];
    for (int i = 0; i < row.count; i++) sums[row.y + i * row.y_step] += weight * a[row.x + i * row.x_step];
  })
}

int cudnnConvolutionBackwardData(void *handle, const void *alpha, const Tensor *w_, const void *w, const Tensor *y_,
                                 const void *dy, const Convolution *c, int algorithm, void *scratch, size_t size,
                                 const void *beta, const Tensor *x_, void *dx) {
  FROM_SUMS(dx, x_, dy, w, {
    double weight = b[row.w];
    for (int i = 0; i < row.count; i++) sums[row.x + i * row.x_step] += weight * a[row.y + i * row.y_step];
  })
}

int cudnnConvolutionBackwardFilter(void *handle, const void *alpha, const Tensor *x_, const void *x, const Tensor *y_,
                                   const void *dy, const Convolution *c, int algorithm, void *scratch, size_t size,
                                   const void *beta, const Tensor *w_, void *dw) {
  FROM_SUMS(dw, w_, dy, x, {
    double sum = 0;
    for (int i = 0; i < row.count; i++) sum += double(a[row.y + i * row.y_step]) * b[row.x + i * row.x_step];
    sums[row.w] += sum;
  })
}
}
