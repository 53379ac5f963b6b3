// Operations on elements, with repetition where shapes differ.
#include <algorithm>
#include "kernels.h"

enum class BinaryOpType : int {
  Greater, Less, Equal, GreaterEqual, LessEqual, NotEqual, LogicalAnd, LogicalOr,
  Maximum, Minimum, Add, Sub, Mul, Div, Pow, RealDiv,
};
enum class ElwiseOpType : int {
  Tanh = 5, Erf = 13, Abs = 15, Sqrt = 16, Rsqrt = 18, Sign = 19, Square = 20, Exp = 21, Sigmoid = 22, LogicalNot = 23,
  ReLU = 24, Log = 25, Neg = 26, Reciprocal = 27, Floor = 33,
};

template <BinaryOpType OP, typename T>
auto binary(T x, T y) {
  using B = BinaryOpType;
  if constexpr (OP == B::Greater) return x > y;
  if constexpr (OP == B::Less) return x < y;
  if constexpr (OP == B::Equal) return x == y;
  if constexpr (OP == B::GreaterEqual) return x >= y;
  if constexpr (OP == B::LessEqual) return x <= y;
  if constexpr (OP == B::NotEqual) return x != y;
  if constexpr (OP == B::LogicalAnd) return x && y;
  if constexpr (OP == B::LogicalOr) return x || y;
  if constexpr (OP == B::Maximum) return x > y || x != x ? x : y;
  if constexpr (OP == B::Minimum) return x < y || x != x ? x : y;
  if constexpr (OP == B::Add) return x + y;
  if constexpr (OP == B::Sub) return x - y;
  if constexpr (OP == B::Mul) return x * y;
  if constexpr (OP == B::Div || OP == B::RealDiv) return x / y;
  if constexpr (OP == B::Pow) return std::pow(x, y);
}

template <BinaryOpType OP, typename T, typename U, typename R>
cudaError BinaryOpWithBroadcastCudaFunc(bool repeats, const std::vector<int64_t> &x_shape,
                                        const std::vector<int64_t> &y_shape, const std::vector<int64_t> &shape, T *x,
                                        U *y, R *result, size_t device, Stream stream) {
  const std::vector<size_t> steps[] = {strides(x_shape, shape.size()), strides(y_shape, shape.size())};
  for_each(shape, steps, [&](size_t i, const size_t *at) { result[i] = R(binary<OP>(x[at[0]], y[at[1]])); });
  return cudaSuccess;
}
#define BINARY(OP, T, R)                                                                                       \
  template cudaError BinaryOpWithBroadcastCudaFunc<BinaryOpType::OP, T, T, R>(                                 \
      bool, const std::vector<int64_t> &, const std::vector<int64_t> &, const std::vector<int64_t> &, T *, T *, R *, \
      size_t, Stream);
#define BINARY_OF_NUMBERS(T)                                                                        \
  BINARY(Greater, T, bool) BINARY(Less, T, bool) BINARY(Equal, T, bool) BINARY(GreaterEqual, T, bool) \
  BINARY(LessEqual, T, bool) BINARY(NotEqual, T, bool) BINARY(Maximum, T, T) BINARY(Minimum, T, T)  \
  BINARY(Add, T, T) BINARY(Sub, T, T) BINARY(Mul, T, T) BINARY(Div, T, T)
BINARY_OF_NUMBERS(float) BINARY_OF_NUMBERS(double) BINARY_OF_NUMBERS(__half) BINARY_OF_NUMBERS(int)
BINARY_OF_NUMBERS(int64_t)
BINARY(RealDiv, float, float) BINARY(RealDiv, double, double) BINARY(RealDiv, __half, __half)
BINARY(Pow, float, float) BINARY(Pow, double, double)
BINARY(LogicalAnd, bool, bool) BINARY(LogicalOr, bool, bool) BINARY(Equal, bool, bool) BINARY(NotEqual, bool, bool)

template <ElwiseOpType OP, typename T>
auto unary(T x) {
  using E = ElwiseOpType;
  if constexpr (OP == E::Tanh) return std::tanh(x);
  if constexpr (OP == E::Erf) return std::erf(x);
  if constexpr (OP == E::Abs) return x < 0 ? -x : x;
  if constexpr (OP == E::Sqrt) return std::sqrt(x);
  if constexpr (OP == E::Rsqrt) return 1 / std::sqrt(x);
  if constexpr (OP == E::Sign) return T((x > 0) - (x < 0));
  if constexpr (OP == E::Square) return x * x;
  if constexpr (OP == E::Exp) return std::exp(x);
  if constexpr (OP == E::Sigmoid) return 1 / (1 + std::exp(-x));
  if constexpr (OP == E::LogicalNot) return !x;
  if constexpr (OP == E::ReLU) return x > 0 ? x : T(0);  // of NaN 0, as on MindSpore's CPU
  if constexpr (OP == E::Log) return std::log(x);
  if constexpr (OP == E::Neg) return -x;
  if constexpr (OP == E::Reciprocal) return 1 / x;
  if constexpr (OP == E::Floor) return std::floor(x);
}

template <ElwiseOpType OP, typename T, typename R>
cudaError UnaryOpsCudaFunc(size_t n, const T *x, R *result, Stream stream) {
  for (size_t i = 0; i < n; i++) result[i] = R(unary<OP>(x[i]));
  return cudaSuccess;
}
#define UNARY(OP, T) template cudaError UnaryOpsCudaFunc<ElwiseOpType::OP, T, T>(size_t, const T *, T *, Stream);
#define UNARY_OF_FLOATS(T)                                                                                     \
  UNARY(Tanh, T) UNARY(Erf, T) UNARY(Abs, T) UNARY(Sqrt, T) UNARY(Rsqrt, T) UNARY(Sign, T) UNARY(Square, T)    \
  UNARY(Exp, T) UNARY(Sigmoid, T) UNARY(ReLU, T) UNARY(Log, T) UNARY(Neg, T) UNARY(Reciprocal, T) UNARY(Floor, T)
UNARY_OF_FLOATS(float) UNARY_OF_FLOATS(double)
UNARY(LogicalNot, bool) UNARY(Neg, int) UNARY(Neg, int64_t) UNARY(Square, int) UNARY(Abs, int)
UNARY(Neg, __half) UNARY(Square, __half) UNARY(Sqrt, __half) UNARY(ReLU, __half) UNARY(Exp, __half)

template <typename T, typename R>
cudaError Cast(int n, const T *x, R *result, Stream stream) {
  for (int i = 0; i < n; i++) result[i] = static_cast<R>(x[i]);
  return cudaSuccess;
}
#define CAST(T, R) template cudaError Cast<T, R>(int, const T *, R *, Stream);
#define CASTS(T) \
  CAST(T, bool) CAST(T, float) CAST(T, double) CAST(T, __half) CAST(T, int) CAST(T, int64_t) CAST(T, uint8_t)
CASTS(bool) CASTS(float) CASTS(double) CASTS(__half) CASTS(int) CASTS(int64_t) CASTS(uint8_t)

template <typename T>
cudaError CalIsFinite(size_t n, const T *x, bool *result, Stream stream) {
  for (size_t i = 0; i < n; i++) result[i] = std::isfinite(static_cast<double>(x[i]));
  return cudaSuccess;
}
template cudaError CalIsFinite(size_t, const float *, bool *, Stream);
template cudaError CalIsFinite(size_t, const double *, bool *, Stream);
template cudaError CalIsFinite(size_t, const __half *, bool *, Stream);

template <typename T>
cudaError CalSelect(const bool *condition, const T *x, const T *y, T *result, size_t n, Stream stream) {
  for (size_t i = 0; i < n; i++) result[i] = condition[i] ? x[i] : y[i];
  return cudaSuccess;
}

struct TrinaryBroadcastStrideInfo {
  size_t steps[3][8];
  size_t of_result[8];
};

TrinaryBroadcastStrideInfo TrinaryBroadcastCalStride(size_t rank, const std::vector<int64_t> &a,
                                                     const std::vector<int64_t> &b, const std::vector<int64_t> &c,
                                                     const std::vector<int64_t> &shape) {
  TrinaryBroadcastStrideInfo info = {};
  const std::vector<int64_t> *operands[] = {&a, &b, &c};
  for (int k = 0; k < 3; k++) {
    auto found = strides(*operands[k], rank);
    std::copy(found.begin(), found.end(), info.steps[k]);
  }
  size_t step = 1;
  for (size_t axis = rank; axis-- > 0; step *= shape[axis]) info.of_result[axis] = step;
  return info;
}

template <typename T>
cudaError CalSelectBroadcast(const bool *condition, const T *x, const T *y, T *result, size_t rank, size_t n,
                             const TrinaryBroadcastStrideInfo &info, unsigned device, Stream stream) {
  for (size_t i = 0; i < n; i++) {
    size_t at[3] = {}, left = i;
    for (size_t axis = 0; axis < rank; axis++) {
      for (int k = 0; k < 3; k++) at[k] += left / info.of_result[axis] * info.steps[k][axis];
      left %= info.of_result[axis];
    }
    result[i] = condition[at[0]] ? x[at[1]] : y[at[2]];
  }
  return cudaSuccess;
}
#define SELECT(T)                                                                             \
  template cudaError CalSelect(const bool *, const T *, const T *, T *, size_t, Stream);      \
  template cudaError CalSelectBroadcast(const bool *, const T *, const T *, T *, size_t, size_t, \
                                        const TrinaryBroadcastStrideInfo &, unsigned, Stream);
SELECT(float) SELECT(double) SELECT(__half) SELECT(int) SELECT(int64_t) SELECT(bool)

// `inner` elements of a result have one value in common.
template <typename T>
cudaError ElewiseMaskedFill(size_t inner, size_t n, const T *x, const bool *mask, T *value, T *result, unsigned device,
                            Stream stream) {
  for (size_t i = 0; i < n; i++) result[i] = mask[i] ? value[i / inner] : x[i];
  return cudaSuccess;
}
#define MASKED_FILL(T) \
  template cudaError ElewiseMaskedFill(size_t, size_t, const T *, const bool *, T *, T *, unsigned, Stream);
MASKED_FILL(float) MASKED_FILL(__half) MASKED_FILL(int) MASKED_FILL(int64_t)

template <typename T>
cudaError FillV2(int64_t n, const T *value, T *result, unsigned device, Stream stream) {
  return std::fill_n(result, n, *value), cudaSuccess;
}
template <typename T>
cudaError FillDeviceArray(size_t n, T *result, float value, Stream stream) {
  return std::fill_n(result, n, T(value)), cudaSuccess;
}
template <typename T>
cudaError CalAssignAdd(size_t n, T *variable, const T *value, T *result, const unsigned &device, Stream stream) {
  for (size_t i = 0; i < n; i++) result[i] = variable[i] = variable[i] + value[i];
  return cudaSuccess;
}
#define OF_STATE(T)                                                                              \
  template cudaError FillV2(int64_t, const T *, T *, unsigned, Stream);                          \
  template cudaError FillDeviceArray(size_t, T *, float, Stream);                                \
  template cudaError CalAssignAdd(size_t, T *, const T *, T *, const unsigned &, Stream);
OF_STATE(float) OF_STATE(double) OF_STATE(__half) OF_STATE(int) OF_STATE(int64_t)

template <typename T>
cudaError CalReLUGrad(int n, T *dy, T *y, T *dx, Stream stream) {
  for (int i = 0; i < n; i++) dx[i] = y[i] > 0 ? dy[i] : T(0);
  return cudaSuccess;
}
template cudaError CalReLUGrad(int, float *, float *, float *, Stream);
template cudaError CalReLUGrad(int, __half *, __half *, __half *, Stream);

template <typename T>
cudaError GetMaxWithEpsAndValue(size_t n, float epsilon, T *x, Stream stream) {
  for (size_t i = 0; i < n; i++) x[i] = std::max(x[i], T(epsilon));
  return cudaSuccess;
}
template cudaError GetMaxWithEpsAndValue(size_t, float, float *, Stream);

// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
static double gelu_tanh(double x) { return std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)); }

template <typename T>
cudaError Gelu(size_t n, const T *x, T *y, Stream stream, unsigned device) {
  for (size_t i = 0; i < n; i++) y[i] = T(0.5 * x[i] * (1 + gelu_tanh(x[i])));
  return cudaSuccess;
}
template <typename T>
cudaError GeluGradKernel(size_t n, T *dy, T *x, T *dx, Stream stream, unsigned device) {
  for (size_t i = 0; i < n; i++) {
    double v = x[i], t = gelu_tanh(v);
    double slope = 0.7978845608028654 * (1 + 3 * 0.044715 * v * v);
    dx[i] = T(dy[i] * (0.5 * (1 + t) + 0.5 * v * (1 - t * t) * slope));
  }
  return cudaSuccess;
}
template cudaError Gelu(size_t, const float *, float *, Stream, unsigned);
template cudaError GeluGradKernel(size_t, float *, float *, float *, Stream, unsigned);
