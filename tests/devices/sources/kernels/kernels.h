// What all kernels need: the types in their names, and loops over tensors. A tensor lies in host memory, densely.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

enum cudaError { cudaSuccess = 0 };
struct CUstream_st;
using Stream = CUstream_st *;

struct __half {
  _Float16 value;
  __half() = default;
  template <typename T> __half(T from) : value(static_cast<_Float16>(static_cast<float>(from))) {}
  operator float() const { return static_cast<float>(value); }
};

// What sums are made in.
template <typename T> struct Wide { using type = T; };
template <> struct Wide<float> { using type = double; };
template <> struct Wide<__half> { using type = double; };
template <> struct Wide<int> { using type = int64_t; };

inline size_t count(const std::vector<int64_t> &shape) {
  size_t n = 1;
  for (auto d : shape) n *= d;
  return n;
}

// The distance between neighbours along each axis of a result, 0 where the operand is repeated; ranks count from the end.
inline std::vector<size_t> strides(const std::vector<int64_t> &shape, size_t rank) {
  std::vector<size_t> found(rank, 0);
  size_t step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    found[rank - shape.size() + i] = shape[i] == 1 ? 0 : step;
    step *= shape[i];
  }
  return found;
}

// For each element of a result, in order: where the element of each operand lies.
template <size_t N, typename F>
void for_each(const std::vector<int64_t> &shape, const std::vector<size_t> (&steps)[N], F body) {
  std::vector<int64_t> at(shape.size(), 0);
  size_t place[N] = {};
  for (size_t i = 0, n = count(shape); i < n; i++) {
    body(i, place);
    for (size_t axis = shape.size(); axis-- > 0;) {
      for (size_t k = 0; k < N; k++) place[k] += steps[k][axis];
      if (++at[axis] < shape[axis]) break;
      at[axis] = 0;
      for (size_t k = 0; k < N; k++) place[k] -= steps[k][axis] * shape[axis];
    }
  }
}
