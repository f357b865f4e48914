/* Kernels for test_table.py, each as plain as can be: what matters is what they are told. */
#include "ext_kernels.h"

typedef struct {
  float* turned; /* rhs [n, k] */
  int prepared;
} t_state;

int t_matmul(const float* lhs, const float* rhs, const float* bias, int relu, float* y, int64_t m,
             int64_t n, int64_t k);
int t_batched(const float* lhs, const float* rhs, float* y, int64_t b, int64_t m, int64_t n,
              int64_t k);
int t_strided(const ext_matmul_params* p, const float* a, const float* b, const ext_epilogue* e,
              float* y);
/* rhs: the transposed matrix in double precision */
int t_packed(const float* lhs, const void* rhs, float* y, int64_t m, int64_t n, int64_t k);
int t_prepare(t_state* state, const float* rhs, int64_t n, int64_t k);
int t_prepared(const t_state* state, const float* lhs, float* y, int64_t m, int64_t n, int64_t k);
int t_conv2d(const float* x, const float* w, const float* bias, int clip, float low, float high,
             float* y, const int64_t batch, int64_t in_c, int64_t in_h, int64_t in_w, int64_t out_c,
             int64_t out_h, int64_t out_w, int64_t kh, int64_t kw, int64_t sh, int64_t sw,
             int64_t top, int64_t left, int64_t dh, int64_t dw, int64_t groups);
int t_pixels(const ext_conv2d_params* p, const float* x, const float* w_hwio, const ext_epilogue* e,
             float* y);
void t_pool(const float* x, float* y, void* scratch, const ext_pool2d_params* p);
int t_softmax(int64_t outer, int64_t reduce, int64_t inner, int log, const float* x, float* y);
int t_sum(int64_t outer, int64_t reduce, int64_t inner, const float* x, float* y);
int t_norm(int64_t rows, int64_t n, float epsilon, const float* x, const float* gamma,
           const float* beta, float* y);
int t_attention(const float* q, const float* k, const float* v, const float* mask, float scale,
                float* y, int64_t heads, int64_t queries, int64_t keys, int64_t depth,
                int64_t width);
int t_unary(ext_unary_kind kind, float alpha, float beta, int64_t n, const float* x, float* y);
int t_subtract(int64_t n, const float* a, const float* b, ext_unary_kind kind, float alpha,
               float* y);
int t_concat(const float* a, const float* b, float* y, int64_t rows, int64_t first, int64_t second);
int t_take(const float* x, const int64_t* at, float* y, int64_t outer, int64_t extent,
           int64_t inner, int64_t count);
