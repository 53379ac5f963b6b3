// The updates of optimizers, in place. Scalars lie in the device's memory.
#include "kernels.h"

template <typename T, typename S, typename G>
cudaError MomentumUpdateVariable(size_t n, T *variable, T *accumulated, const S *rate, const G *gradient,
                                 const S *momentum, bool nesterov, Stream stream) {
  for (size_t i = 0; i < n; i++) {
    accumulated[i] = T(*momentum * accumulated[i] + gradient[i]);
    variable[i] = T(variable[i] - *rate * (nesterov ? gradient[i] + *momentum * accumulated[i] : T(accumulated[i])));
  }
  return cudaSuccess;
}
template cudaError MomentumUpdateVariable(size_t, float *, float *, const float *, const float *, const float *, bool,
                                          Stream);

template <typename T, typename S, typename G>
cudaError FusedScaleMomentum(size_t n, S *scale, T *variable, T *accumulated, const S *rate, const G *gradient,
                             const S *momentum, Stream stream) {
  for (size_t i = 0; i < n; i++) {
    accumulated[i] = T(*momentum * accumulated[i] + *scale * gradient[i]);
    variable[i] = T(variable[i] - *rate * accumulated[i]);
  }
  return cudaSuccess;
}
template cudaError FusedScaleMomentum(size_t, float *, float *, float *, const float *, const float *, const float *,
                                      Stream);

// `fresh` is above 0 before the first step.
template <typename T>
cudaError SGD(int n, T dampening, T decay, bool nesterov, const T *rate, const T *momentum, const T *gradient, T *variable,
              T *accumulated, T *fresh, Stream stream) {
  for (int i = 0; i < n; i++) {
    T direction = gradient[i] + decay * variable[i];
    if (*momentum > 0) {
      accumulated[i] = fresh[i] > 0 ? direction : *momentum * accumulated[i] + (1 - dampening) * direction;
      fresh[i] = 0;
      direction = nesterov ? direction + *momentum * accumulated[i] : accumulated[i];
    }
    variable[i] -= *rate * direction;
  }
  return cudaSuccess;
}
template cudaError SGD(int, float, float, bool, const float *, const float *, const float *, float *, float *, float *,
                       Stream);

template <typename T>
cudaError ApplyAdam(size_t n, int64_t batches, const T *gradient, const T *beta1_power, const T *beta2_power,
                    const T *rate, const T *beta1, const T *beta2, const T *epsilon, T *variable, T *m, T *v,
                    bool nesterov, Stream stream) {
  T step = *rate * std::sqrt(1 - *beta2_power) / (1 - *beta1_power);
  for (size_t i = 0; i < n * batches; i++) {
    m[i] += (gradient[i] - m[i]) * (1 - *beta1);
    v[i] += (gradient[i] * gradient[i] - v[i]) * (1 - *beta2);
    T direction = nesterov ? m[i] * *beta1 + gradient[i] * (1 - *beta1) : m[i];
    variable[i] -= step * direction / (std::sqrt(v[i]) + *epsilon);
  }
  return cudaSuccess;
}
template cudaError ApplyAdam(size_t, int64_t, const float *, const float *, const float *, const float *, const float *,
                             const float *, const float *, float *, float *, float *, bool, Stream);

template <typename T, typename S>
cudaError AdamWeightDecayOp(size_t n, const S *gradient, const float *rate, const float *beta1, const float *beta2,
                            const float *epsilon, const float *decay, S *variable, T *m, T *v, Stream stream) {
  for (size_t i = 0; i < n; i++) {
    m[i] = *beta1 * m[i] + (1 - *beta1) * gradient[i];
    v[i] = *beta2 * v[i] + (1 - *beta2) * gradient[i] * gradient[i];
    variable[i] -= *rate * (m[i] / (std::sqrt(v[i]) + *epsilon) + *decay * variable[i]);
  }
  return cudaSuccess;
}
template cudaError AdamWeightDecayOp(size_t, const float *, const float *, const float *, const float *, const float *,
                                     const float *, float *, float *, float *, Stream);
