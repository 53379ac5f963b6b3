// BatchNorm of channels: over samples and places in the image.
#include <cmath>
#include <vector>

#include "descriptors.h"

enum { PER_ELEMENT = 0, PLAIN = 0 };

// For each element of a channel: body(place).
template <typename F>
static void for_each_of(const Tensor &x, int channel, F body) {
  for (int n = 0; n < x.dim[0]; n++)
    for (int h = 0; h < x.dim[2]; h++)
      for (int w = 0; w < x.dim[3]; w++) body(x.at(n, channel, h, w));
}

extern "C" {

int cudnnBatchNormalizationForwardTrainingEx(void *handle, int mode, int operations, const void *alpha, const void *beta,
                                             const Tensor *x_, const void *x, const Tensor *z_, const void *z,
                                             const Tensor *y_, void *y, const Tensor *parameters, const float *scale,
                                             const float *bias, double momentum, float *running_mean,
                                             float *running_variance, double epsilon, float *mean, float *inverse,
                                             const Activation *activation, void *scratch, size_t scratch_size,
                                             void *reserve, size_t reserve_size) {
  if ((mode == PER_ELEMENT && x_->dim[2] * x_->dim[3] != 1) || operations != PLAIN) return NOT_SUPPORTED;
  return with_type(x_->dtype, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T *from = (const T *)x;
    double elements = double(x_->dim[0]) * x_->dim[2] * x_->dim[3];
    for (int c = 0; c < x_->dim[1]; c++) {
      double sum = 0, squares = 0;
      for_each_of(*x_, c, [&](size_t i) { sum += from[i]; });
      double middle = sum / elements;
      for_each_of(*x_, c, [&](size_t i) { squares += (from[i] - middle) * (from[i] - middle); });
      double normal = 1 / std::sqrt(squares / elements + epsilon);
      mean[c] = middle;
      inverse[c] = normal;
      double unbiased = elements > 1 ? squares / (elements - 1) : squares;
      running_mean[c] = running_mean[c] * (1 - momentum) + middle * momentum;
      running_variance[c] = running_variance[c] * (1 - momentum) + unbiased * momentum;
      double a = factor(alpha, x_->dtype), b = factor(beta, x_->dtype);
      for_each_of(*x_, c, [&](size_t i) { blend(((T *)y)[i], (from[i] - middle) * normal * scale[c] + bias[c], a, b); });
    }
    return int(SUCCESS);
  });
}

int cudnnBatchNormalizationBackwardEx(void *handle, int mode, int operations, const void *alpha_data,
                                      const void *beta_data, const void *alpha_parameters, const void *beta_parameters,
                                      const Tensor *x_, const void *x, const Tensor *y_, const void *y,
                                      const Tensor *dy_, const void *dy, const Tensor *dz_, void *dz, const Tensor *dx_,
                                      void *dx, const Tensor *parameters, const float *scale, const float *bias,
                                      float *dscale, float *dbias, double epsilon, const float *mean,
                                      const float *inverse, const Activation *activation, void *scratch,
                                      size_t scratch_size, void *reserve, size_t reserve_size) {
  if ((mode == PER_ELEMENT && x_->dim[2] * x_->dim[3] != 1) || operations != PLAIN) return NOT_SUPPORTED;
  return with_type(x_->dtype, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T *from = (const T *)x, *above = (const T *)dy;
    double elements = double(x_->dim[0]) * x_->dim[2] * x_->dim[3];
    double a = factor(alpha_data, x_->dtype), b = factor(beta_data, x_->dtype);
    for (int c = 0; c < x_->dim[1]; c++) {
      double sum = 0, product = 0;
      auto normal = [&](size_t i) { return (from[i] - double(mean[c])) * inverse[c]; };
      for_each_of(*x_, c, [&](size_t i) {
        sum += above[i];
        product += above[i] * normal(i);
      });
      blend(dscale[c], product, factor(alpha_parameters, x_->dtype), factor(beta_parameters, x_->dtype));
      blend(dbias[c], sum, factor(alpha_parameters, x_->dtype), factor(beta_parameters, x_->dtype));
      for_each_of(*x_, c, [&](size_t i) {
        double inner = above[i] - sum / elements - normal(i) * product / elements;
        blend(((T *)dx)[i], scale[c] * inverse[c] * inner, a, b);
      });
    }
    return int(SUCCESS);
  });
}
}
