#include "kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int t_matmul(const float* lhs, const float* rhs, const float* bias, int relu, float* y, int64_t m,
             int64_t n, int64_t k) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      float sum = bias ? bias[j] : 0;
      for (int64_t p = 0; p < k; ++p) sum += lhs[i * k + p] * rhs[p * n + j];
      y[i * n + j] = relu && sum < 0 ? 0 : sum;
    }
  }
  return 0;
}

int t_batched(const float* lhs, const float* rhs, float* y, int64_t b, int64_t m, int64_t n,
              int64_t k) {
  for (int64_t i = 0; i < b; ++i) {
    t_matmul(lhs + i * m * k, rhs + i * k * n, NULL, 0, y + i * m * n, m, n, k);
  }
  return 0;
}

static float apply(const ext_activation* f, float x) {
  float y = 0;
  ext_unary(f, 1, &x, &y);
  return y;
}

/* `start` is where the residual of this matrix begins. */
static float finish(const ext_epilogue* e, float x, int64_t start, int64_t row, int64_t column) {
  if (e == NULL) return x;
  if (e->bias) x += e->bias[column];
  x = apply(&e->before, x);
  if (e->residual) x += e->residual[start + row * e->residual_stride + column];
  return apply(&e->after, x);
}

int t_strided(const ext_matmul_params* p, const float* a, const float* b, const ext_epilogue* e,
              float* y) {
  if (p->batch_ndim > 1) return EXT_ERR_ARGUMENT;
  for (int64_t s = 0; s < (p->batch_ndim ? p->batch[0] : 1); ++s) {
    for (int64_t i = 0; i < p->m; ++i) {
      for (int64_t j = 0; j < p->n; ++j) {
        float sum = 0;
        for (int64_t q = 0; q < p->k; ++q) {
          sum += a[s * p->a_batch[0] + i * p->a_row + q * p->a_col] *
                 b[s * p->b_batch[0] + q * p->b_row + j * p->b_col];
        }
        y[s * p->y_batch[0] + i * p->y_row + j] = finish(e, sum, s * p->residual_batch[0], i, j);
      }
    }
  }
  return 0;
}

int t_packed(const float* lhs, const void* rhs, float* y, int64_t m, int64_t n, int64_t k) {
  const double* turned = rhs;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t p = 0; p < k; ++p) sum += lhs[i * k + p] * turned[j * k + p];
      y[i * n + j] = (float)sum;
    }
  }
  return 0;
}

int t_prepare(t_state* state, const float* rhs, int64_t n, int64_t k) {
  if (state->prepared++) return EXT_ERR_ARGUMENT; /* once means once */
  state->turned = malloc(sizeof(float) * n * k);
  if (state->turned == NULL) return EXT_ERR_MEMORY;
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t p = 0; p < k; ++p) state->turned[j * k + p] = rhs[p * n + j];
  }
  return 0;
}

int t_prepared(const t_state* state, const float* lhs, float* y, int64_t m, int64_t n, int64_t k) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t p = 0; p < k; ++p) sum += lhs[i * k + p] * state->turned[j * k + p];
      y[i * n + j] = sum;
    }
  }
  return 0;
}

int t_conv2d(const float* x, const float* w, const float* bias, int clip, float low, float high,
             float* y, const int64_t batch, int64_t in_c, int64_t in_h, int64_t in_w, int64_t out_c,
             int64_t out_h, int64_t out_w, int64_t kh, int64_t kw, int64_t sh, int64_t sw,
             int64_t top, int64_t left, int64_t dh, int64_t dw, int64_t groups) {
  const int64_t ic = in_c / groups, oc = out_c / groups;
  for (int64_t at = 0; at < batch * out_c * out_h * out_w; ++at) {
    const int64_t ow = at % out_w, oh = at / out_w % out_h, o = at / (out_w * out_h) % out_c;
    const int64_t image = at / (out_w * out_h * out_c);
    float sum = bias ? bias[o] : 0;
    for (int64_t c = 0; c < ic; ++c) {
      for (int64_t i = 0; i < kh; ++i) {
        for (int64_t j = 0; j < kw; ++j) {
          const int64_t h = oh * sh + i * dh - top, v = ow * sw + j * dw - left;
          if (h < 0 || h >= in_h || v < 0 || v >= in_w) continue;
          sum += w[((o * ic + c) * kh + i) * kw + j] *
                 x[((image * in_c + o / oc * ic + c) * in_h + h) * in_w + v];
        }
      }
    }
    y[at] = clip ? fminf(fmaxf(sum, low), high) : sum;
  }
  return 0;
}

int t_pixels(const ext_conv2d_params* p, const float* x, const float* w_hwio, const ext_epilogue* e,
             float* y) {
  for (int64_t at = 0; at < p->batch * p->out_h * p->out_w * p->out_c; ++at) {
    const int64_t o = at % p->out_c, pixel = at / p->out_c;
    const int64_t ow = pixel % p->out_w, oh = pixel / p->out_w % p->out_h;
    const int64_t image = pixel / (p->out_w * p->out_h);
    float sum = 0;
    for (int64_t i = 0; i < p->kernel_h; ++i) {
      for (int64_t j = 0; j < p->kernel_w; ++j) {
        const int64_t h = oh * p->stride_h + i - p->pad_top, v = ow * p->stride_w + j - p->pad_left;
        if (h < 0 || h >= p->in_h || v < 0 || v >= p->in_w) continue;
        for (int64_t c = 0; c < p->in_c; ++c) {
          sum += w_hwio[((i * p->kernel_w + j) * p->in_c + c) * p->out_c + o] *
                 x[((image * p->in_h + h) * p->in_w + v) * p->x_stride + c];
        }
      }
    }
    y[pixel * p->y_stride + o] = finish(e, sum, 0, pixel, o);
  }
  return 0;
}

void t_pool(const float* x, float* y, void* scratch, const ext_pool2d_params* p) {
  float* greatest = scratch; /* [channels] */
  for (int64_t pixel = 0; pixel < p->batch * p->out_h * p->out_w; ++pixel) {
    const int64_t ow = pixel % p->out_w, oh = pixel / p->out_w % p->out_h;
    const int64_t image = pixel / (p->out_w * p->out_h);
    for (int64_t c = 0; c < p->channels; ++c) greatest[c] = -INFINITY;
    for (int64_t i = 0; i < p->kernel_h; ++i) {
      for (int64_t j = 0; j < p->kernel_w; ++j) {
        const int64_t h = oh * p->stride_h + i - p->pad_top, v = ow * p->stride_w + j - p->pad_left;
        if (h < 0 || h >= p->in_h || v < 0 || v >= p->in_w) continue;
        const float* from = x + ((image * p->in_h + h) * p->in_w + v) * p->x_stride;
        for (int64_t c = 0; c < p->channels; ++c) greatest[c] = fmaxf(greatest[c], from[c]);
      }
    }
    memcpy(y + pixel * p->y_stride, greatest, sizeof(float) * p->channels);
  }
}

int t_softmax(int64_t outer, int64_t reduce, int64_t inner, int log, const float* x, float* y) {
  for (int64_t at = 0; at < outer * inner; ++at) {
    const int64_t first = at / inner * reduce * inner + at % inner;
    double sum = 0;
    for (int64_t r = 0; r < reduce; ++r) sum += exp(x[first + r * inner]);
    for (int64_t r = 0; r < reduce; ++r) {
      const double share = exp(x[first + r * inner]) / sum;
      y[first + r * inner] = (float)(log ? logf((float)share) : share);
    }
  }
  return 0;
}

int t_sum(int64_t outer, int64_t reduce, int64_t inner, const float* x, float* y) {
  for (int64_t at = 0; at < outer * inner; ++at) {
    y[at] = 0;
    for (int64_t r = 0; r < reduce; ++r) {
      y[at] += x[at / inner * reduce * inner + r * inner + at % inner];
    }
  }
  return 0;
}

int t_norm(int64_t rows, int64_t n, float epsilon, const float* x, const float* gamma,
           const float* beta, float* y) {
  for (int64_t i = 0; i < rows; ++i, x += n, y += n) {
    double mean = 0, variance = 0;
    for (int64_t j = 0; j < n; ++j) mean += x[j] / n;
    for (int64_t j = 0; j < n; ++j) variance += (x[j] - mean) * (x[j] - mean) / n;
    for (int64_t j = 0; j < n; ++j) {
      y[j] = (float)((x[j] - mean) / sqrt(variance + epsilon)) * gamma[j] + beta[j];
    }
  }
  return 0;
}

int t_attention(const float* q, const float* k, const float* v, const float* mask, float scale,
                float* y, int64_t heads, int64_t queries, int64_t keys, int64_t depth,
                int64_t width) {
  double* share = malloc(sizeof(double) * keys);
  if (share == NULL) return EXT_ERR_MEMORY;
  for (int64_t row = 0; row < heads * queries; ++row) { /* one batch */
    const int64_t head = row / queries;
    double sum = 0;
    for (int64_t j = 0; j < keys; ++j) {
      double score = 0;
      for (int64_t d = 0; d < depth; ++d)
        score += q[row * depth + d] * k[(head * keys + j) * depth + d];
      sum += share[j] = exp(score * scale + (mask ? mask[row * keys + j] : 0));
    }
    for (int64_t c = 0; c < width; ++c) {
      double out = 0;
      for (int64_t j = 0; j < keys; ++j) out += share[j] / sum * v[(head * keys + j) * width + c];
      y[row * width + c] = (float)out;
    }
  }
  free(share);
  return 0;
}

int t_unary(ext_unary_kind kind, float alpha, float beta, int64_t n, const float* x, float* y) {
  const ext_activation f = {kind, alpha, beta};
  return ext_unary(&f, n, x, y);
}

int t_subtract(int64_t n, const float* a, const float* b, ext_unary_kind kind, float alpha,
               float* y) {
  const ext_activation f = {kind, alpha, 0};
  for (int64_t i = 0; i < n; ++i) y[i] = apply(&f, a[i] - b[i]);
  return 0;
}

int t_concat(const float* a, const float* b, float* y, int64_t rows, int64_t first,
             int64_t second) {
  for (int64_t i = 0; i < rows; ++i) {
    memcpy(y + i * (first + second), a + i * first, sizeof(float) * first);
    memcpy(y + i * (first + second) + first, b + i * second, sizeof(float) * second);
  }
  return 0;
}

int t_take(const float* x, const int64_t* at, float* y, int64_t outer, int64_t extent,
           int64_t inner, int64_t count) {
  for (int64_t i = 0; i < outer * count; ++i) {
    const int64_t index = at[i % count];
    if (index < 0 || index >= extent) return EXT_ERR_INDEX;
    memcpy(y + i * inner, x + (i / count * extent + index) * inner, sizeof(float) * inner);
  }
  return 0;
}
