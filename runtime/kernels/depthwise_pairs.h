/*
 * depthwise_pairs.h - tiles of depthwise_tile.h where x and y are bf16 and the epilogue is a bias
 * and a clamp:
 *
 * y[oh][ow][c] = clamp(bias[c] + sum_{kh,kw} x[oh sh + kh dh - top][ow sw + kw - left][c]
 *                                            * w[kh][kw][c])
 *
 * 2 VL channels are VL words of 32 bits: a shift or a mask of these gives the even or the odd
 * channels in fp32, one instruction a vector, and whole lines are read and written.  A tile is
 * PAIRS_W neighbouring pixels; the last one of a row begins early, so that all are full.
 */
#ifndef EXT_DEPTHWISE_PAIRS_H_
#define EXT_DEPTHWISE_PAIRS_H_

#include "../simd/bf16_pairs.h"

/* 14 sums, 10 weights and the column where there are 32 registers; widths of images are mostly
 * multiples of 7. */
enum { PAIRS_W = TILE_W > 7 ? 7 : TILE_W };

/* A block is 2 VL channels; the last one begins early, so that it is full. */
EXT_INLINE int64_t pairs_blocks(const ext_conv2d_params* p) {
  return ceil_div(p->in_c, 2 * VL);
}
EXT_INLINE int64_t pairs_channel(const ext_conv2d_params* p, int64_t block) {
  return i64_min(block * 2 * VL, p->in_c - 2 * VL);
}

/* Floats of a block: bias and taps, [1 + kh kw][2][VL], even channels before odd ones. */
EXT_INLINE int64_t pairs_size(const ext_conv2d_params* p) {
  return (1 + p->kernel_h * p->kernel_w) * 2 * VL;
}

EXT_INLINE void part_pairs(float* restrict dst, const float* restrict x) {
  for (int i = 0; i < VL; i++) {
    dst[i] = x[2 * i];
    dst[VL + i] = x[2 * i + 1];
  }
}

static void pack_pairs(const depthwise_job* job, float* dst) {
  const int64_t taps = job->p.kernel_h * job->p.kernel_w;
  const float none[2 * VL] = {0};
  for (int64_t block = 0; block < pairs_blocks(&job->p); block++) {
    const int64_t c = pairs_channel(&job->p, block);
    part_pairs(dst, job->e.bias ? job->e.bias + c : none);
    dst += 2 * VL;
    for (int64_t t = 0; t < taps; t++, dst += 2 * VL) part_pairs(dst, job->w + t * job->w_row + c);
  }
}

/* What a tile needs of its row. */
typedef struct {
  const uint16_t* x; /* the tile's first column of kernel row kh0; may lie left of the image */
  int64_t kh0, kh1, x_row, x_stride;
  int64_t before, past; /* columns [before, past) are there */
  uint16_t* y;          /* pixel 0 of the tile */
  int64_t y_stride;
} pairs_at;

/* 2 VL channels of PAIRS_W pixels.  Kernel width `taps`, `stride` and `checked` are constants;
 * fewer than `taps` columns are missing at either side. */
EXT_INLINE void pairs_block(const int taps, const int stride, const int checked, const pairs_at* at,
                            const float* w, float low, float high) {
  const int columns = (PAIRS_W - 1) * stride + taps;
  vf even[PAIRS_W], odd[PAIRS_W];
  even[0] = vf_load(w);
  odd[0] = vf_load(w + VL);
  EXT_UNROLL
  for (int i = 1; i < PAIRS_W; i++) even[i] = even[0], odd[i] = odd[0];
  w += (1 + at->kh0 * taps) * 2 * VL;
  const uint16_t* x = at->x;
  for (int64_t kh = at->kh0; kh < at->kh1; kh++, x += at->x_row, w += taps * 2 * VL) {
    vf w_even[8], w_odd[8];
    EXT_UNROLL
    for (int k = 0; k < taps; k++) {
      w_even[k] = vf_load(w + k * 2 * VL);
      w_odd[k] = vf_load(w + k * 2 * VL + VL);
    }
    const uint16_t* column = x;
    EXT_UNROLL
    for (int j = 0; j < columns; j++, column += at->x_stride) {
      if (checked && j < taps - 1 && j < at->before) continue;
      if (checked && j >= columns - taps + 1 && j >= at->past) continue;
      const vbits two = vbits_load(column);
      const vf u = vf_keep(vbits_even(two)), v = vf_keep(vbits_odd(two));
      EXT_UNROLL
      for (int k = 0; k < taps; k++) {
        const int i = (j - k) / stride;
        if (j < k || (j - k) % stride || i >= PAIRS_W) continue;
        even[i] = vf_fma(u, w_even[k], even[i]);
        odd[i] = vf_fma(v, w_odd[k], odd[i]);
      }
    }
  }
  const vf least = vf_set1(low), most = vf_set1(high);
  EXT_UNROLL
  for (int i = 0; i < PAIRS_W; i++)
    vbits_store(at->y + i * at->y_stride, vf_min(most, vf_max(least, even[i])),
                vf_min(most, vf_max(least, odd[i])));
}

/* Blocks [first, past). */
EXT_INLINE void pairs_tile(const int taps, const int stride, const int checked,
                           const depthwise_job* job, const pairs_at* tile, int64_t first,
                           int64_t past) {
  const float low = job->tail.low, high = job->tail.high;
  const int64_t size = pairs_size(&job->p), most = job->p.in_c - 2 * VL;
  const float* w = job->pairs + first * size;
  for (int64_t block = first; block < past; block++, w += size) {
    const int64_t c = i64_min(block * 2 * VL, most);
    pairs_at at = *tile;
    at.x += c;
    at.y += c;
    pairs_block(taps, stride, checked, &at, w, low, high);
  }
}

typedef void (*pairs_function)(const depthwise_job* job, const pairs_at* at, int64_t first,
                               int64_t past);

/* For tiles inside of the image, and at its border. */
#define EXT_PAIRS_OF(taps, stride)                                                         \
  static void pairs_inner_##taps##_##stride(const depthwise_job* job, const pairs_at* at,  \
                                            int64_t first, int64_t past) {                 \
    pairs_tile(taps, stride, 0, job, at, first, past);                                     \
  }                                                                                        \
  static void pairs_border_##taps##_##stride(const depthwise_job* job, const pairs_at* at, \
                                             int64_t first, int64_t past) {                \
    pairs_tile(taps, stride, 1, job, at, first, past);                                     \
  }                                                                                        \
  static const pairs_function pairs_##taps##_##stride[2] = {pairs_inner_##taps##_##stride, \
                                                            pairs_border_##taps##_##stride};
EXT_PAIRS_OF(3, 1)
EXT_PAIRS_OF(3, 2)
EXT_PAIRS_OF(5, 1)
EXT_PAIRS_OF(5, 2)
EXT_PAIRS_OF(7, 1)

static const pairs_function* find_pairs(const ext_conv2d_params* p) {
#define EXT_CASE(taps, stride) \
  if (p->kernel_w == (taps) && p->stride_w == (stride)) return pairs_##taps##_##stride
  EXT_CASE(3, 1);
  EXT_CASE(3, 2);
  EXT_CASE(5, 1);
  EXT_CASE(5, 2);
  EXT_CASE(7, 1);
#undef EXT_CASE
  return NULL;
}

static int runs_in_pairs(const depthwise_job* job) {
  const ext_conv2d_params* p = &job->p;
  if (!X_BF16 || !job->narrow_y || !job->tail.clamp || job->e.residual) return 0;
  if (p->in_c < 2 * VL || p->out_w < PAIRS_W || p->dilation_w != 1 || !find_pairs(p)) return 0;
  const int64_t last = (p->out_w - 1) * p->stride_w - p->pad_left + p->kernel_w - 1;
  return p->pad_left < p->kernel_w && last - (p->in_w - 1) < p->kernel_w;
}

/* Blocks [first, past) of output row `index`. */
static void pairs_row(const depthwise_job* job, int64_t index, int64_t first, int64_t past) {
  const ext_conv2d_params* p = &job->p;
  const pairs_function* tiles = find_pairs(p);
  const int64_t columns = (PAIRS_W - 1) * p->stride_w + p->kernel_w;
  const kernel_rows inside = kernel_rows_inside(p, index);
  const uint16_t* x = (const uint16_t*)job->x + inside.line * p->in_w * p->x_stride;
  uint16_t* y = (uint16_t*)job->y + index * p->out_w * p->y_stride;
  pairs_at at = {.kh0 = inside.first, .kh1 = inside.past};
  at.x_row = p->dilation_h * p->in_w * p->x_stride;
  at.x_stride = p->x_stride;
  at.y_stride = p->y_stride;
  for (int64_t i = 0; i < p->out_w; i += PAIRS_W) {
    const int64_t ow = i64_min(i, p->out_w - PAIRS_W), iw = ow * p->stride_w - p->pad_left;
    at.before = i64_max(0, -iw);
    at.past = p->in_w - iw;
    at.x = x + iw * p->x_stride;
    at.y = y + ow * p->y_stride;
    tiles[iw < 0 || at.past < columns](job, &at, first, past);
  }
}

/* Weights that stay in L1 beside the image's rows are read tile by tile; others, once. */
static int pairs_rows(void* context, int64_t begin, int64_t end) {
  enum { FEW_WEIGHTS = 20 << 10 };
  const depthwise_job* job = context;
  const int64_t blocks = pairs_blocks(&job->p);
  const int64_t bytes = blocks * pairs_size(&job->p) * (int64_t)sizeof(float);
  const int64_t step = bytes <= FEW_WEIGHTS ? blocks : 1;
  for (int64_t block = 0; block < blocks; block += step)
    for (int64_t i = begin; i < end; i++) pairs_row(job, i, block, block + step);
  return EXT_OK;
}

#endif /* EXT_DEPTHWISE_PAIRS_H_ */
