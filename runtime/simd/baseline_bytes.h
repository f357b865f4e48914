/* Any CPU: 8-bit integers, and sums of their products; see simd.h. */

EXT_INLINE vi vi_load(const int32_t* p) {
  vi x;
  memcpy(&x, p, sizeof x);
  return x;
}
EXT_INLINE void vi_store(int32_t* p, vi x) {
  memcpy(p, &x, sizeof x);
}
EXT_INLINE vf vi_to_vf(vi x) {
  return __builtin_convertvector(x, vf);
}
EXT_INLINE vi vi_load_u8(const uint8_t* p) {
  return (vi){p[0], p[1], p[2], p[3]};
}
EXT_INLINE vi vi_load_s8(const uint8_t* p) {
  return (vi){(int8_t)p[0], (int8_t)p[1], (int8_t)p[2], (int8_t)p[3]};
}
EXT_INLINE void vi_store_low(uint8_t* p, vi x) {
  for (int i = 0; i < VL; i++) p[i] = (uint8_t)x[i];
}

/* A column's four bytes of a panel are two 16-bit lanes: `even` takes the low byte of each, `odd`
 * the high one, as they lie on a little-endian CPU. */
typedef int16_t vh __attribute__((vector_size(4 * VL)));
typedef uint16_t vuh __attribute__((vector_size(4 * VL)));
typedef int16_t qa;
typedef vi vq;
typedef struct {
  vh even, odd;
} vqa, vqb;

EXT_INLINE vqa vq_row(const qa* p) {
  vh even = {0}, odd = {0};
  for (int i = 0; i < 2 * VL; i++) {
    even[i] = p[i % 2 * 2];
    odd[i] = p[i % 2 * 2 + 1];
  }
  return (vqa){even, odd};
}
EXT_INLINE vqb vq_panel(const int8_t* p) {
  vuh bytes;
  memcpy(&bytes, p, sizeof bytes);
  return (vqb){(vh)(bytes << 8) >> 8, (vh)bytes >> 8};
}
EXT_INLINE vq vq_start(vi start) {
  return start;
}
/* Products fit into 16 bits: 255 x -128.  Of each lane the two halves are added. */
EXT_INLINE vq vq_dot(vq sum, vqa a, vqb b) {
  vu even = (vu)(a.even * b.even), odd = (vu)(a.odd * b.odd);
  sum += ((vi)(even << 16) >> 16) + ((vi)even >> 16);
  return sum + (((vi)(odd << 16) >> 16) + ((vi)odd >> 16));
}
EXT_INLINE vi vq_sum(vq sum, vi start) {
  (void)start;
  return sum;
}
EXT_INLINE vq vq_dot_quads(vq sum, vx a, vqb b) {
  vuh bytes = (vuh)a;
  return vq_dot(sum, (vqa){(vh)(bytes & 255), (vh)(bytes >> 8)}, b);
}

/* Bytes of the same place in several vectors, side by side: from element `from` on, in runs. */
EXT_INLINE vx vx_zip(vx a, vx b, int from, int run) {
  vx y;
  for (int i = 0; i < 4 * VL; i++) {
    int at = from + i / (2 * run) * run + i % run;
    y[i] = i / run % 2 ? b[at] : a[at];
  }
  return y;
}
EXT_INLINE vx vx_low(vx a, vx b) {
  return vx_zip(a, b, 0, 1);
}
EXT_INLINE vx vx_high(vx a, vx b) {
  return vx_zip(a, b, 2 * VL, 1);
}
EXT_INLINE vx vx_low_pairs(vx a, vx b) {
  return vx_zip(a, b, 0, 2);
}
EXT_INLINE vx vx_high_pairs(vx a, vx b) {
  return vx_zip(a, b, 2 * VL, 2);
}
EXT_INLINE vx vx_narrow(vi a, vi b, vi c, vi d) {
  vx y;
  for (int i = 0; i < VL; i++) {
    y[i] = (uint8_t)a[i];
    y[VL + i] = (uint8_t)b[i];
    y[2 * VL + i] = (uint8_t)c[i];
    y[3 * VL + i] = (uint8_t)d[i];
  }
  return y;
}
EXT_INLINE vx vx_in_order(vx x) {
  return x;
}

EXT_INLINE vx vx_max(vx a, vx b) {
  const vx more = (vx)(a > b);
  return (a & more) | (b & ~more);
}

/* table[x] of 256 bytes. */
EXT_INLINE vx vx_lookup(const uint8_t* table, vx x) {
  vx y;
  for (int i = 0; i < 4 * VL; i++) y[i] = table[x[i]];
  return y;
}
