/*
 * y[b][i][j] = epilogue(sum_p a[b][i][p] w[p][j]) for a w of 4 or 8 bits (ext_block_weight), over
 * up to 4 batch axes of a.
 *
 * Few rows, and those that are rounded to bytes, are the business of matmul_block_few.c.  For more,
 * tiles of w are written out as floats, which the microkernel of gemm.c reads from L2.
 */
#include "block_weight.h"
#include "gemm.h"

enum { FEW_ROWS = 8 /* beyond, gemm.c is faster */ };

/* Of the vectors of a panel, what a block has for all of its rows. */
typedef struct {
  vf zero[PER_PANEL], base[MOST_FIELDS][PER_PANEL];
} block_zeros;

/* dst[r] = row r of those that words at `at` hold. */
EXT_INLINE void unpack_words(const int bits, const zero_kind zeros, const int32_t* at,
                             const vf* scale, const block_zeros* z, float* dst) {
  EXT_UNROLL
  for (int v = 0; v < PER_PANEL; v++) {
    vi word = vi_load(at + v * VL);
    EXT_UNROLL
    for (int i = 0; i < 32 / bits; i++) {
      const int f = i % (HALF / bits), upper = i >= HALF / bits;
      if (upper && f == 0) word = upper_half(word);
      vf q = less_zero(bits, zeros, f, word, z->base[f][v], z->zero[v]);
      vf_store(dst + row_of(bits, f, upper) * EXT_PANEL + v * VL, q * scale[v]);
    }
  }
}

EXT_INLINE void unpack_rows(const int bits, const zero_kind zeros, const ext_block_weight* w,
                            int64_t k, int64_t panel, int64_t k0, int64_t kc, float* dst) {
  const int64_t step = 32 / bits, stop = k0 + kc;
  const int32_t* at = (const int32_t*)w->values + panel * words_of(bits, k) + words_of(bits, k0);
  const int64_t first = panel * blocks_of(w, k) * EXT_PANEL;
  for (int64_t p = k0; p < stop;) {
    const int64_t block = p / w->block, place = first + block * EXT_PANEL;
    const int64_t end = i64_min(stop, (block + 1) * w->block);
    vf scale[PER_PANEL];
    block_zeros z;
    EXT_UNROLL
    for (int v = 0; v < PER_PANEL; v++) {
      scale[v] = vf_load(w->scale + place + v * VL);
      z.zero[v] = zeros_at(bits, zeros, w, place + v * VL);
      EXT_UNROLL
      for (int f = 0; f < HALF / bits; f++) z.base[f][v] = base_of(bits, zeros, f, z.zero[v]);
    }
    for (; p < end; p += step, at += EXT_PANEL, dst += step * EXT_PANEL)
      unpack_words(bits, zeros, at, scale, &z, dst);
  }
}

/* Rows [k0, k0 + kc) of a panel; k0 is a multiple of EXT_UNPACK_STEP. */
static void unpack(const void* weight, int64_t k, int64_t panel, int64_t k0, int64_t kc,
                   float* dst) {
  const ext_block_weight* w = weight;
  const zero_kind zeros = zeros_of(w);
  if (w->bits == 4 && zeros == NUMBERS)
    unpack_rows(4, NUMBERS, w, k, panel, k0, kc, dst);
  else if (w->bits == 4)
    unpack_rows(4, zeros, w, k, panel, k0, kc, dst);
  else if (zeros == NUMBERS)
    unpack_rows(8, NUMBERS, w, k, panel, k0, kc, dst);
  else
    unpack_rows(8, zeros, w, k, panel, k0, kc, dst);
}

static int run_many(const ext_matmul_params* p, const ext_block_weight* w, const float* a,
                    const ext_epilogue* e, float* y) {
  ext_matmul_source s;
  ext_gemm g;
  int status = EXT_NAME(ext_matmul_gemm)(p, &s, a, e, y, &g);
  if (status) return status;
  g.unpack = unpack;
  g.weight = w;
  return EXT_NAME(ext_gemm_run)(&g);
}

/* Whether no number of a, times an integer, is infinite or none.  Else a block is not summed before
 * it is scaled. */
static int is_ordinary(const ext_matmul_params* p, const float* a, int64_t batches) {
  const vi sign = vi_set1(INT32_MAX), most = vi_set1((127 + 100) << 23);
  vi large = vi_set1(0);
  for (int64_t b = 0; b < batches; b++) {
    const float* item = a;
    int64_t rest = b;
    for (int d = p->batch_ndim - 1; d >= 0; d--) {
      item += rest % p->batch[d] * p->a_batch[d];
      rest /= p->batch[d];
    }
    for (int64_t r = 0; r < p->m; r++) {
      const float* row = item + r * p->a_row;
      int64_t q = 0;
      if (p->a_col == 1)
        for (; q + VL <= p->k; q += VL) large |= ((vi)vf_load(row + q) & sign) > most;
      for (; q < p->k; q++) large |= ((vi)vf_set1(row[q * p->a_col]) & sign) > most;
    }
  }
  int32_t lanes[VL], found = 0;
  vi_store(lanes, large);
  for (int i = 0; i < VL; i++) found |= lanes[i];
  return !found;
}

int EXT_NAME(ext_matmul_block)(const ext_matmul_params* p, const ext_block_weight* w,
                               const float* a, const ext_epilogue* e, float* y) {
  if (p->batch_ndim < 0 || p->batch_ndim > 4) return EXT_ERR_ARGUMENT;
  for (int d = 0; d < p->batch_ndim; d++)
    if (p->b_batch[d]) return EXT_ERR_ARGUMENT;
  if ((w->bits != 4 && w->bits != 8) || w->block < 1) return EXT_ERR_ARGUMENT;
  if (w->data_bits != 0 && w->data_bits != 8) return EXT_ERR_ARGUMENT;
  if (w->block % (32 / w->bits) && w->block < p->k) return EXT_ERR_ARGUMENT;
  if (w->zero && w->zero_dtype != EXT_UINT8 && w->zero_dtype != EXT_FLOAT32)
    return EXT_ERR_ARGUMENT;
  int64_t batches = 1;
  for (int d = 0; d < p->batch_ndim; d++) batches *= p->batch[d];
  if (p->m <= 0 || p->n <= 0 || batches <= 0) return EXT_OK;
  if (w->data_bits == 8) {
    int status = ext_matmul_block_few(p, w, a, e, y, batches, 1);
    if (status != EXT_UNFIT) return status;
  }
  if (p->m <= FEW_ROWS && is_ordinary(p, a, batches))
    return ext_matmul_block_few(p, w, a, e, y, batches, 0);
  return run_many(p, w, a, e, y);
}

EXT_DISPATCH(ext_matmul_block,
             (const ext_matmul_params* p, const ext_block_weight* w, const float* a,
              const ext_epilogue* e, float* y),
             (p, w, a, e, y))
