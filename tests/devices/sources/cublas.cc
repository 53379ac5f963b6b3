// Products of matrices, as cuBLAS stores them: column by column.
#include <cstdlib>
#include <vector>

enum { SUCCESS = 0, NOT_SUPPORTED = 15 };
enum DataType { FLOAT = 0, DOUBLE = 1, HALF = 2 };
enum { COMPUTE_DOUBLE = 70 };

// One of the operands: element (i, j) of op(A).
template <typename T>
static double element(const T *a, bool transposed, int step, int i, int j) {
  return a[transposed ? j + size_t(i) * step : i + size_t(j) * step];
}

template <typename T>
static void multiply(bool turn_a, bool turn_b, int m, int n, int k, double alpha, const T *a, int step_a, const T *b,
                     int step_b, double beta, T *c, int step_c) {
  std::vector<double> left(size_t(m) * k), column(m);  // op(A), column by column
  for (int p = 0; p < k; p++)
    for (int i = 0; i < m; i++) left[i + size_t(p) * m] = element(a, turn_a, step_a, i, p);
  for (int j = 0; j < n; j++) {
    column.assign(m, 0);
    for (int p = 0; p < k; p++) {
      double factor = element(b, turn_b, step_b, p, j);
      const double *from = left.data() + size_t(p) * m;
      for (int i = 0; i < m; i++) column[i] += from[i] * factor;
    }
    for (int i = 0; i < m; i++) {
      T &to = c[i + size_t(j) * step_c];
      to = T(alpha * column[i] + (beta == 0 ? 0 : beta * to));
    }
  }
}

extern "C" {

int cublasCreate_v2(void **handle) { return (*handle = calloc(1, 256)) ? SUCCESS : 3; }
int cublasDestroy_v2(void *handle) { return free(handle), SUCCESS; }
int cublasGetMathMode(void *handle, int *mode) { return *mode = 0, SUCCESS; }

int cublasGemmStridedBatchedEx(void *handle, int turn_a, int turn_b, int m, int n, int k, const void *alpha,
                               const void *a, int type_a, int step_a, long long next_a, const void *b, int type_b,
                               int step_b, long long next_b, const void *beta, void *c, int type_c, int step_c,
                               long long next_c, int batches, int compute, int algorithm) {
  if (type_a != type_b || type_a != type_c) return NOT_SUPPORTED;
  bool wide = compute == COMPUTE_DOUBLE;
  double x = wide ? *(const double *)alpha : *(const float *)alpha;
  double y = wide ? *(const double *)beta : *(const float *)beta;
  auto all = [&](auto *to) {
    using T = std::remove_pointer_t<decltype(to)>;
    for (int i = 0; i < batches; i++)
      multiply(turn_a, turn_b, m, n, k, x, (const T *)a + i * next_a, step_a, (const T *)b + i * next_b, step_b, y,
               to + i * next_c, step_c);
    return SUCCESS;
  };
  if (type_a == FLOAT) return all((float *)c);
  if (type_a == DOUBLE) return all((double *)c);
  if (type_a == HALF) return all((_Float16 *)c);
  return NOT_SUPPORTED;
}

int cublasGemmEx(void *handle, int turn_a, int turn_b, int m, int n, int k, const void *alpha, const void *a, int type_a,
                 int step_a, const void *b, int type_b, int step_b, const void *beta, void *c, int type_c, int step_c,
                 int compute, int algorithm) {
  return cublasGemmStridedBatchedEx(handle, turn_a, turn_b, m, n, k, alpha, a, type_a, step_a, 0, b, type_b, step_b, 0,
                                    beta, c, type_c, step_c, 0, 1, compute, algorithm);
}
}
