// The largest element or the mean of windows of images.
#include <algorithm>
#include <vector>

#include "descriptors.h"

enum { LARGEST = 0, MEAN_WITH_PADDING = 1, MEAN = 2, LARGEST_IN_ORDER = 3 };

// For each output: body(n, c, h, w, the rows and columns of its window that lie in the image, the divisor of a mean).
template <typename F>
static void for_each_window(const Pooling &p, const Tensor &x, const Tensor &y, F body) {
  for (int n = 0; n < y.dim[0]; n++)
    for (int c = 0; c < y.dim[1]; c++)
      for (int h = 0; h < y.dim[2]; h++)
        for (int w = 0; w < y.dim[3]; w++) {
          int top = h * p.stride[0] - p.pad[0], left = w * p.stride[1] - p.pad[1];
          int r0 = std::max(top, 0), r1 = std::min(top + p.window[0], x.dim[2]);
          int s0 = std::max(left, 0), s1 = std::min(left + p.window[1], x.dim[3]);
          int divisor = p.mode == MEAN ? (r1 - r0) * (s1 - s0) : p.window[0] * p.window[1];
          body(n, c, h, w, r0, r1, s0, s1, divisor);
        }
}

static bool of_largest(const Pooling &p) { return p.mode == LARGEST || p.mode == LARGEST_IN_ORDER; }

// The place of the first of the largest elements of a window.
template <typename T>
static size_t place_of_largest(const Tensor &x_, const T *x, int n, int c, int r0, int r1, int s0, int s1) {
  size_t best = x_.at(n, c, r0, s0);
  for (int r = r0; r < r1; r++)
    for (int s = s0; s < s1; s++)
      if (x[x_.at(n, c, r, s)] > x[best]) best = x_.at(n, c, r, s);
  return best;
}

extern "C" {

int cudnnPoolingForward(void *handle, const Pooling *p, const void *alpha, const Tensor *x_, const void *x,
                        const void *beta, const Tensor *y_, void *y) {
  return with_type(x_->dtype, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T *from = (const T *)x;
    double a = factor(alpha, x_->dtype), b = factor(beta, x_->dtype);
    for_each_window(*p, *x_, *y_, [&](int n, int c, int h, int w, int r0, int r1, int s0, int s1, int divisor) {
      double value = 0;
      if (of_largest(*p)) {
        value = from[place_of_largest(*x_, from, n, c, r0, r1, s0, s1)];
      } else {
        for (int r = r0; r < r1; r++)
          for (int s = s0; s < s1; s++) value += from[x_->at(n, c, r, s)];
        value /= divisor;
      }
      blend(((T *)y)[y_->at(n, c, h, w)], value, a, b);
    });
    return int(SUCCESS);
  });
}

int cudnnPoolingBackward(void *handle, const Pooling *p, const void *alpha, const Tensor *y_, const void *y,
                         const Tensor *dy_, const void *dy, const Tensor *x_, const void *x, const void *beta,
                         const Tensor *dx_, void *dx) {
  return with_type(x_->dtype, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    std::vector<double> sums(size_t(dx_->dim[0]) * dx_->dim[1] * dx_->dim[2] * dx_->dim[3], 0);
    for_each_window(*p, *x_, *y_, [&](int n, int c, int h, int w, int r0, int r1, int s0, int s1, int divisor) {
      double above = ((const T *)dy)[dy_->at(n, c, h, w)];
      if (of_largest(*p)) {
        sums[place_of_largest(*x_, (const T *)x, n, c, r0, r1, s0, s1)] += above;
      } else {
        for (int r = r0; r < r1; r++)
          for (int s = s0; s < s1; s++) sums[dx_->at(n, c, r, s)] += above / divisor;
      }
    });
    double a = factor(alpha, x_->dtype), b = factor(beta, x_->dtype);
    for (size_t i = 0; i < sums.size(); i++) blend(((T *)dx)[i], sums[i], a, b);
    return int(SUCCESS);
  });
}
}
