// Operations on elements, folds and softmax.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "descriptors.h"

enum { ADD = 0, MULTIPLY = 1, SMALLER = 2, LARGER = 3 };  // cudnnOpTensorOp_t
enum { SUM = 0, PRODUCT = 1, SMALLEST = 2, LARGEST = 3, LARGEST_OF_ABSOLUTE = 4, MEAN = 5, NORM1 = 6, NORM2 = 7 };
enum { LOGARITHM = 2, OF_SAMPLE = 0 };  // cudnnSoftmaxAlgorithm_t, cudnnSoftmaxMode_t
enum { SIGMOID = 0, RELU = 1, TANH = 2, CLIPPED_RELU = 3, ELU = 4 };

static size_t elements(const Tensor &t) {
  size_t n = 1;
  for (int i = 0; i < t.rank; i++) n *= t.dim[i];
  return n;
}

// Where the i-th element of `whole` lies in `part`, whose axes of 1 are repeated.
static size_t place(size_t i, const Tensor &whole, const Tensor &part) {
  size_t at = 0;
  for (int axis = whole.rank; axis-- > 0; i /= whole.dim[axis])
    if (part.dim[axis] != 1) at += i % whole.dim[axis] * part.stride[axis];
  return at;
}

extern "C" {

int cudnnOpTensor(void *handle, const int *operation, const void *alpha1, const Tensor *a_, const void *a,
                  const void *alpha2, const Tensor *b_, const void *b, const void *beta, const Tensor *c_, void *c) {
  return with_type(c_->dtype, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    double x = factor(alpha1, c_->dtype), y = factor(alpha2, c_->dtype), old = factor(beta, c_->dtype);
    for (size_t i = 0, n = elements(*c_); i < n; i++) {
      double left = x * ((const T *)a)[place(i, *c_, *a_)], right = y * ((const T *)b)[place(i, *c_, *b_)];
      double value = *operation == ADD        ? left + right
                     : *operation == MULTIPLY ? left * right
                     : *operation == SMALLER  ? std::min(left, right)
                                              : std::max(left, right);
      blend(((T *)c)[place(i, *c_, *c_)], value, 1, old);
    }
    return *operation <= LARGER ? int(SUCCESS) : int(NOT_SUPPORTED);
  });
}

int cudnnReduceTensor(void *handle, const int *fold, void *indices, size_t indices_size, void *scratch,
                      size_t scratch_size, const void *alpha, const Tensor *a_, const void *a, const void *beta,
                      const Tensor *c_, void *c) {
  return with_type(a_->dtype, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    double infinity = std::numeric_limits<double>::infinity();
    double start = *fold == PRODUCT ? 1 : *fold == SMALLEST ? infinity : *fold == LARGEST ? -infinity : 0;
    std::vector<double> found(elements(*c_), start);
    for (size_t i = 0, n = elements(*a_); i < n; i++) {
      double &so_far = found[place(i, *a_, *c_)], x = ((const T *)a)[place(i, *a_, *a_)];
      switch (*fold) {
        case PRODUCT: so_far *= x; break;
        case SMALLEST: so_far = x < so_far || x != x ? x : so_far; break;
        case LARGEST: so_far = x > so_far || x != x ? x : so_far; break;
        case LARGEST_OF_ABSOLUTE: so_far = std::max(so_far, std::fabs(x)); break;
        case NORM1: so_far += std::fabs(x); break;
        case NORM2: so_far += x * x; break;
        default: so_far += x;
      }
    }
    for (size_t i = 0; i < found.size(); i++) {
      double value = *fold == MEAN ? found[i] * found.size() / elements(*a_) : *fold == NORM2 ? std::sqrt(found[i]) : found[i];
      blend(((T *)c)[i], value, factor(alpha, a_->dtype), factor(beta, a_->dtype));
    }
    return *fold <= NORM2 ? int(SUCCESS) : int(NOT_SUPPORTED);
  });
}

int cudnnSoftmaxForward(void *handle, int algorithm, int mode, const void *alpha, const Tensor *x_, const void *x,
                        const void *beta, const Tensor *y_, void *y) {
  return with_type(x_->dtype, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T *from = (const T *)x;
    size_t channels = x_->dim[1], inner = elements(*x_) / x_->dim[0] / channels;
    size_t width = mode == OF_SAMPLE ? channels * inner : channels;
    size_t step = mode == OF_SAMPLE ? 1 : inner;
    for (size_t row = 0, rows = elements(*x_) / width; row < rows; row++) {
      size_t first = row / step * width * step + row % step;
      double largest = from[first], sum = 0;
      for (size_t k = 0; k < width; k++) largest = std::max<double>(largest, from[first + k * step]);
      for (size_t k = 0; k < width; k++) sum += std::exp(from[first + k * step] - largest);
      for (size_t k = 0; k < width; k++) {
        double exponent = from[first + k * step] - largest;
        double value = algorithm == LOGARITHM ? exponent - std::log(sum) : std::exp(exponent) / sum;
        blend(((T *)y)[first + k * step], value, factor(alpha, x_->dtype), factor(beta, x_->dtype));
      }
    }
    return int(SUCCESS);
  });
}

int cudnnSoftmaxBackward(void *handle, int algorithm, int mode, const void *alpha, const Tensor *y_, const void *y,
                         const Tensor *dy_, const void *dy, const void *beta, const Tensor *dx_, void *dx) {
  return with_type(y_->dtype, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T *result = (const T *)y, *above = (const T *)dy;
    size_t channels = y_->dim[1], inner = elements(*y_) / y_->dim[0] / channels;
    size_t width = mode == OF_SAMPLE ? channels * inner : channels;
    size_t step = mode == OF_SAMPLE ? 1 : inner;
    for (size_t row = 0, rows = elements(*y_) / width; row < rows; row++) {
      size_t first = row / step * width * step + row % step;
      double sum = 0;
      for (size_t k = 0, at = first; k < width; k++, at += step)
        sum += algorithm == LOGARITHM ? double(above[at]) : double(above[at]) * result[at];
      for (size_t k = 0, at = first; k < width; k++, at += step) {
        double value = algorithm == LOGARITHM ? above[at] - std::exp(double(result[at])) * sum
                                              : (above[at] - sum) * double(result[at]);
        blend(((T *)dx)[at], value, factor(alpha, y_->dtype), factor(beta, y_->dtype));
      }
    }
    return int(SUCCESS);
  });
}

int cudnnActivationForward(void *handle, const Activation *activation, const void *alpha, const Tensor *x_,
                           const void *x, const void *beta, const Tensor *y_, void *y) {
  return with_type(x_->dtype, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    for (size_t i = 0, n = elements(*x_); i < n; i++) {
      double v = ((const T *)x)[i], c = activation->coefficient;
      double value = activation->mode == SIGMOID        ? 1 / (1 + std::exp(-v))
                     : activation->mode == RELU         ? std::max(v, 0.0)
                     : activation->mode == TANH         ? std::tanh(v)
                     : activation->mode == CLIPPED_RELU ? std::min(std::max(v, 0.0), c)
                                                        : (v > 0 ? v : c * std::expm1(v));
      blend(((T *)y)[i], value, factor(alpha, x_->dtype), factor(beta, x_->dtype));
    }
    return int(SUCCESS);
  });
}

int cudnnActivationBackward(void *handle, const Activation *activation, const void *alpha, const Tensor *y_,
                            const void *y, const Tensor *dy_, const void *dy, const Tensor *x_, const void *x,
                            const void *beta, const Tensor *dx_, void *dx) {
  return with_type(y_->dtype, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    for (size_t i = 0, n = elements(*y_); i < n; i++) {
      double v = ((const T *)y)[i], c = activation->coefficient;
      double slope = activation->mode == SIGMOID        ? v * (1 - v)
                     : activation->mode == RELU         ? double(v > 0)
                     : activation->mode == TANH         ? 1 - v * v
                     : activation->mode == CLIPPED_RELU ? double(v > 0 && v < c)
                                                        : (v > 0 ? 1 : v + c);
      blend(((T *)dx)[i], slope * double(((const T *)dy)[i]), factor(alpha, y_->dtype), factor(beta, y_->dtype));
    }
    return int(SUCCESS);
  });
}
}
