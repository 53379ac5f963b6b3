// Losses and normalisation.
#include <algorithm>
#include "kernels.h"

template <typename T, bool LOG>
cudaError Softmax(T *x, T *y, size_t width, size_t outer, size_t inner, size_t device, Stream stream) {
  for (size_t o = 0; o < outer; o++)
    for (size_t i = 0; i < inner; i++) {
      const T *from = x + o * width * inner + i;
      T *to = y + o * width * inner + i;
      double largest = from[0], sum = 0;
      for (size_t k = 1; k < width; k++) largest = std::max<double>(largest, from[k * inner]);
      for (size_t k = 0; k < width; k++) sum += std::exp(from[k * inner] - largest);
      for (size_t k = 0; k < width; k++) {
        double exponent = from[k * inner] - largest;
        to[k * inner] = T(LOG ? exponent - std::log(sum) : std::exp(exponent) / sum);
      }
    }
  return cudaSuccess;
}
template cudaError Softmax<float, false>(float *, float *, size_t, size_t, size_t, size_t, Stream);
template cudaError Softmax<float, true>(float *, float *, size_t, size_t, size_t, size_t, Stream);

// The mean over rows of -log(probability of the label).
template <typename T, typename S>
cudaError CrossEntropyWithSparse(const T *probability, const S *label, size_t rows, size_t classes, T *loss, Stream) {
  double sum = 0;
  for (size_t i = 0; i < rows; i++)
    if (label[i] >= 0 && size_t(label[i]) < classes) sum -= std::log(double(probability[i * classes + label[i]]));
  return *loss = T(sum / rows), cudaSuccess;
}
template <typename T, typename S>
cudaError CrossEntropyGradWithSparse(const T *probability, const S *label, size_t rows, size_t classes, T *gradient,
                                     Stream) {
  for (size_t i = 0; i < rows * classes; i++)
    gradient[i] = (probability[i] - T(size_t(label[i / classes]) == i % classes)) / rows;
  return cudaSuccess;
}
#define CROSS_ENTROPY(S)                                                                                       \
  template cudaError CrossEntropyWithSparse(const float *, const S *, size_t, size_t, float *, Stream);        \
  template cudaError CrossEntropyGradWithSparse(const float *, const S *, size_t, size_t, float *, Stream);
CROSS_ENTROPY(int) CROSS_ENTROPY(int64_t)

// Each row of `width` elements to mean 0 and variance 1; gamma and beta have `parameters` elements.
template <typename T>
cudaError LayerNorm(int rows, int width, int parameters, float epsilon, const T *x, const T *gamma, const T *beta, T *y,
                    float *mean, float *variance, Stream stream) {
  for (int r = 0; r < rows; r++) {
    const T *from = x + size_t(r) * width;
    double sum = 0, squares = 0;
    for (int i = 0; i < width; i++) sum += from[i];
    double middle = sum / width;
    for (int i = 0; i < width; i++) squares += (from[i] - middle) * (from[i] - middle);
    mean[r] = middle;
    variance[r] = squares / width;
    double scale = 1 / std::sqrt(squares / width + epsilon);
    for (int i = 0; i < width; i++)
      y[size_t(r) * width + i] = T((from[i] - middle) * scale * gamma[i % parameters] + beta[i % parameters]);
  }
  return cudaSuccess;
}

template <typename T>
cudaError LayerNormGrad(int rows, int width, int parameters, float epsilon, const T *dy, const T *x, const float *mean,
                        const float *variance, const T *gamma, T *dx, T *dgamma, T *dbeta, Stream stream) {
  std::vector<double> of_gamma(parameters, 0), of_beta(parameters, 0);
  for (int r = 0; r < rows; r++) {
    double scale = 1 / std::sqrt(double(variance[r]) + epsilon), sum = 0, product = 0;
    const T *in = x + size_t(r) * width, *above = dy + size_t(r) * width;
    for (int i = 0; i < width; i++) {
      double normal = (in[i] - double(mean[r])) * scale, g = double(above[i]) * gamma[i % parameters];
      of_gamma[i % parameters] += above[i] * normal;
      of_beta[i % parameters] += above[i];
      sum += g;
      product += g * normal;
    }
    for (int i = 0; i < width; i++) {
      double normal = (in[i] - double(mean[r])) * scale, g = double(above[i]) * gamma[i % parameters];
      dx[size_t(r) * width + i] = T(scale * (g - sum / width - normal * product / width));
    }
  }
  std::copy(of_gamma.begin(), of_gamma.end(), dgamma);
  std::copy(of_beta.begin(), of_beta.end(), dbeta);
  return cudaSuccess;
}
template cudaError LayerNorm(int, int, int, float, const float *, const float *, const float *, float *, float *,
                             float *, Stream);
template cudaError LayerNormGrad(int, int, int, float, const float *, const float *, const float *, const float *,
                                 const float *, float *, float *, float *, Stream);
