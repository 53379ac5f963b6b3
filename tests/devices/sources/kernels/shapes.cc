// Elements in other places, and sums and other folds of them.
#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include "kernels.h"

struct TransposeInfo {
  std::vector<int64_t> shape;
  std::vector<int32_t> axes;
};

template <typename T, bool SIMPLIFIED>
cudaError CalTranspose(size_t n, const T *x, const TransposeInfo &info, T *result, Stream stream) {
  auto of_x = strides(info.shape, info.shape.size());
  std::vector<int64_t> shape;
  std::vector<size_t> steps[1];
  for (auto axis : info.axes) {
    shape.push_back(info.shape[axis]);
    steps[0].push_back(of_x[axis]);
  }
  for_each(shape, steps, [&](size_t i, const size_t *at) { result[i] = x[at[0]]; });
  return cudaSuccess;
}
#define TRANSPOSE(T)                                                                             \
  template cudaError CalTranspose<T, true>(size_t, const T *, const TransposeInfo &, T *, Stream); \
  template cudaError CalTranspose<T, false>(size_t, const T *, const TransposeInfo &, T *, Stream);
TRANSPOSE(float) TRANSPOSE(double) TRANSPOSE(__half) TRANSPOSE(int) TRANSPOSE(int64_t) TRANSPOSE(bool)

template <typename T>
cudaError CalTile(std::vector<size_t> x_shape, std::vector<size_t> shape, const T *x, T *result, Stream stream) {
  for (size_t i = 0, n = std::accumulate(shape.begin(), shape.end(), size_t(1), std::multiplies<>()); i < n; i++) {
    size_t left = i, at = 0, step = 1;
    for (size_t axis = shape.size(); axis-- > 0;) {
      size_t width = axis + x_shape.size() >= shape.size() ? x_shape[axis + x_shape.size() - shape.size()] : 1;
      at += left % shape[axis] % width * step;
      left /= shape[axis];
      step *= width;
    }
    result[i] = x[at];
  }
  return cudaSuccess;
}
template cudaError CalTile(std::vector<size_t>, std::vector<size_t>, const float *, float *, Stream);
template cudaError CalTile(std::vector<size_t>, std::vector<size_t>, const int *, int *, Stream);

// Rows of a table by index; an index outside of it gives zeros.
template <typename T, typename S>
cudaError Gather(T *x, S *index, T *result, size_t batches, size_t before, size_t indices, size_t after, size_t rows,
                 Stream stream) {
  for (size_t b = 0; b < batches; b++)
    for (size_t i = 0; i < before; i++)
      for (size_t j = 0; j < indices; j++) {
        S row = index[b * indices + j];
        T *to = result + ((b * before + i) * indices + j) * after;
        if (row >= 0 && size_t(row) < rows)
          std::copy_n(x + ((b * before + i) * rows + row) * after, after, to);
        else
          std::fill_n(to, after, T(0));
      }
  return cudaSuccess;
}
#define GATHER(T, S) \
  template cudaError Gather(T *, S *, T *, size_t, size_t, size_t, size_t, size_t, Stream);
GATHER(float, int) GATHER(float, int64_t) GATHER(int, int) GATHER(int64_t, int64_t)

struct ShapeHelper {
  size_t dim[8];
};

// For each index: body(its place, the place in the other tensor that it names along `axis`). An index outside of it, which
// a kernel without a body may have left there, is passed over.
template <typename S, typename F>
static void for_each_index(const S *index, size_t axis, size_t rank, const ShapeHelper &shape, const ShapeHelper &of_index,
                           F body) {
  for (size_t i = 0, n = std::accumulate(of_index.dim, of_index.dim + rank, size_t(1), std::multiplies<>()); i < n; i++) {
    size_t left = i, place = 0, step = 1;
    S named = index[i] < 0 ? index[i] + S(shape.dim[axis]) : index[i];
    if (named < 0 || size_t(named) >= shape.dim[axis]) continue;
    for (size_t a = rank; a-- > 0; step *= shape.dim[a]) {
      place += (a == axis ? size_t(named) : left % of_index.dim[a]) * step;
      left /= of_index.dim[a];
    }
    body(i, place);
  }
}

template <typename T, typename S>
cudaError GatherD(const T *x, const S *index, T *result, size_t axis, size_t indices, size_t rank,
                  const ShapeHelper &shape, const ShapeHelper &of_index, Stream stream, unsigned device) {
  std::fill_n(result, std::accumulate(of_index.dim, of_index.dim + rank, size_t(1), std::multiplies<>()), T(0));
  for_each_index(index, axis, rank, shape, of_index, [&](size_t i, size_t place) { result[i] = x[place]; });
  return cudaSuccess;
}
template <typename S, typename T>
cudaError GatherGrad(const S *index, const T *gradient, T *result, size_t axis, size_t indices, size_t rank,
                     const ShapeHelper &shape, const ShapeHelper &of_index, Stream stream) {
  std::fill_n(result, std::accumulate(shape.dim, shape.dim + rank, size_t(1), std::multiplies<>()), T(0));
  for_each_index(index, axis, rank, shape, of_index, [&](size_t i, size_t place) { result[place] += gradient[i]; });
  return cudaSuccess;
}
#define GATHER_D(T, S)                                                                                          \
  template cudaError GatherD(const T *, const S *, T *, size_t, size_t, size_t, const ShapeHelper &,            \
                             const ShapeHelper &, Stream, unsigned);                                            \
  template cudaError GatherGrad(const S *, const T *, T *, size_t, size_t, size_t, const ShapeHelper &,         \
                                const ShapeHelper &, Stream);
GATHER_D(float, int) GATHER_D(float, int64_t)

template <typename T, typename S>
cudaError UnsortedSegmentSum(size_t rows, size_t width, size_t segments, size_t width_of_result, T *x, S *segment,
                             T *result, Stream stream, const unsigned &device) {
  std::fill_n(result, segments * width_of_result, T(0));
  for (size_t i = 0; i < rows; i++)
    if (segment[i] >= 0 && size_t(segment[i]) < segments)
      for (size_t j = 0; j < width; j++) result[segment[i] * width_of_result + j] += x[i * width + j];
  return cudaSuccess;
}
#define SEGMENT_SUM(T, S) \
  template cudaError UnsortedSegmentSum(size_t, size_t, size_t, size_t, T *, S *, T *, Stream, const unsigned &);
SEGMENT_SUM(float, int) SEGMENT_SUM(float, int64_t) SEGMENT_SUM(int, int)

typedef enum { Sum, Product, Largest, Smallest, Mean, Any, All } ReduceType_t;

// Every other axis is folded, `first` says whether the first is.
template <typename T>
cudaError ArrayReduce(T *x, const std::vector<size_t> &x_shape, bool first, ReduceType_t type, T *scratch, T *result,
                      Stream stream) {
  using W = typename Wide<T>::type;
  std::vector<int64_t> shape(x_shape.begin(), x_shape.end()), kept = shape;
  size_t folded = 1;
  for (size_t axis = 0; axis < shape.size(); axis++)
    if ((axis % 2 == 0) == first) {
      folded *= shape[axis];
      kept[axis] = 1;
    }
  using L = std::numeric_limits<W>;
  W lowest = L::has_infinity ? -L::infinity() : L::lowest(), highest = L::has_infinity ? L::infinity() : L::max();
  W start = type == Largest ? lowest : type == Smallest ? highest : W(type == Product || type == All);
  std::vector<W> found(count(kept), start);
  const std::vector<size_t> steps[] = {strides(kept, shape.size())};
  for_each(shape, steps, [&](size_t i, const size_t *at) {
    W &so_far = found[at[0]], value = static_cast<W>(x[i]);
    if (type == Product) so_far = so_far * value;
    else if (type == Largest) so_far = value > so_far || value != value ? value : so_far;
    else if (type == Smallest) so_far = value < so_far || value != value ? value : so_far;
    else if (type == Any) so_far = so_far || value;
    else if (type == All) so_far = so_far && value;
    else so_far = so_far + value;
  });
  for (size_t i = 0; i < found.size(); i++) result[i] = T(type == Mean ? found[i] / W(folded) : found[i]);
  return cudaSuccess;
}
#define REDUCE(T) \
  template cudaError ArrayReduce(T *, const std::vector<size_t> &, bool, ReduceType_t, T *, T *, Stream);
REDUCE(float) REDUCE(double) REDUCE(__half) REDUCE(int) REDUCE(int64_t)

template <>
cudaError ArrayReduce(bool *x, const std::vector<size_t> &shape, bool first, ReduceType_t type, bool *, bool *result,
                      Stream stream) {
  size_t n = std::accumulate(shape.begin(), shape.end(), size_t(1), std::multiplies<>());
  std::vector<int> wide(x, x + n), found(n);
  ArrayReduce<int>(wide.data(), shape, first, type, nullptr, found.data(), stream);
  size_t kept = 1;
  for (size_t axis = 0; axis < shape.size(); axis++) kept *= (axis % 2 == 0) == first ? 1 : shape[axis];
  std::copy_n(found.begin(), kept, result);
  return cudaSuccess;
}

// The sum over all but the axis of channels.
template <typename T>
cudaError CalBiasAddGradNCHW(size_t n, size_t channels, int height, int width, const T *dy, T *db, Stream stream) {
  std::vector<double> sums(channels, 0);
  size_t plane = size_t(height) * width;
  for (size_t i = 0; i < n; i++) sums[i / plane % channels] += dy[i];
  std::copy(sums.begin(), sums.end(), db);
  return cudaSuccess;
}
template cudaError CalBiasAddGradNCHW(size_t, size_t, int, int, const float *, float *, Stream);
