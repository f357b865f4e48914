/*
 * tile_config.h - what a level's registers hold: every choice of a kernel that depends on the level
 * and is a number.  One block for each kind of registers; a further row of ext_isa.h that has the
 * registers of a level is compiled with that level's block, and one with other registers or units
 * adds its own.
 *
 *   VL           floats in a vector
 *   gemm         a tile of the microkernel has MR rows and NV vectors of columns.  With
 *                EXT_HALF_VECTORS there is one for every half vector of columns (vf_fma_low), with
 *                EXT_LANE_FMA a multiply-add takes one lane of a vector (vf_fma_lane).  EXT_ROWS
 *                lists the rows 1 .. MR
 *   casts        with EXT_FLOAT16_CASTS the CPU converts from and to float16 (vf_load_float16_n)
 *   gemv         MOST_COLUMNS: of a product by dots.  MANY_OF_f: vectors x at once for f vectors w.
 *                A walk of r rows is WIDTH_OF_r vectors wide, NARROW at most where a matrix is read
 *                faster so; a sweep of r rows takes STEPS_OF_r rows of b at a time.  A walk of
 *                one row down blocks of integers is WIDTH_OF_BLOCKS vectors wide; where
 *                digits of bytes are faster, a panel, or a vector with DIGIT_ROWS rows
 *   attention    FEW_QUERIES of few are computed at once, FEW_VECTORS of their columns
 *   bgemm        a tile of bf16 products has BVR rows and BVN vectors of columns; one of at most
 *                BWIDE_ROWS rows, which waits for B, has BWIDE vectors.  EXT_BROWS lists the rows.
 *                With EXT_MASKED_LANES the first lanes of a vector are stored as fast as all.  The
 *                build gives EXT_BF16_UNIT to rows of ext_isa.h with an instruction that adds two
 *                products, and EXT_TILES to those with tiles (bgemm.h, qgemm.h)
 *   qgemm        a tile of 8-bit products has QVR rows and QVN vectors of columns, whose sums are
 *                a vq each; EXT_QROWS lists the rows.  QW pixels of a depthwise convolution are
 *                summed at once, 4 vq each.  Packed rows of A (qa) hold unsigned bytes, signed ones
 *                with EXT_DOT_SIGNED, 16 bits with EXT_DOT_WIDE.  The build gives EXT_DOT to rows
 *                of ext_isa.h with an instruction that adds four products of bytes, and
 *                EXT_DOT_PAIRS to those with one for two rows and two columns.  With
 *                EXT_SATURATING_NARROW integers saturate on their way to bytes, with
 *                EXT_STORED_PIECES there is an instruction that stores a part of a vx
 *   depthwise    TILE_W pixels of a row in a tile
 *   grouped      GROUPED_W pixels of a row in a tile, GROUPED_C inputs of a group at once; of 8-bit
 *                integers QGROUPED_W pixels, whose sums are a vq each
 *   recurrent    a tile of a step has RECURRENT_ROWS rows of the batch, and RECURRENT_SUMS vectors
 *                at once: RECURRENT_VECTORS of each of some gates; one of a lone row has
 *                RECURRENT_WIDE.  RECURRENT_CHAINS vectors of sums hide the latency of
 *                multiply-adds.  EXT_RECURRENT_ROWS lists the rows.  With weights of 8 bits there
 *                are RECURRENT_BYTE_ROWS rows of four gates, which EXT_RECURRENT_BYTE_ROWS lists
 *   peak         PEAK_CHAINS: independent chains that keep the multiply-add units busy, each
 *                x = x a + b, or x = a b + x with EXT_PEAK_ADDS
 *
 * Thresholds of gemv: the wider the walk, the longer the piece of each row of a plain matrix; but
 * four panels side by side, and with one row of y also 256 bytes of each row of b, are read faster
 * than more, unless these are whole pages apart (measured on Zen 4).
 */
#ifndef EXT_TILE_CONFIG_H_
#define EXT_TILE_CONFIG_H_

#if defined(EXT_SIMD_AVX512) /* 32 registers of 16 floats */
#define VL 16
/* gemm: 14 x 2 accumulators, 2 vectors of B, 1-2 broadcasts of A: 32 registers. */
enum { MR = 14, NV = 2 };
#define EXT_HALF_VECTORS
#define EXT_FLOAT16_CASTS
#define EXT_ROWS(X, k, i) \
  EXT_ROWS_8(X, k, i)     \
  X(9, k, i) X(10, k, i) X(11, k, i) X(12, k, i) X(13, k, i) X(14, k, i)
/* gemv: beyond 6 columns the half vector of gemm.c is as fast. */
enum { MOST_COLUMNS = 6 };
enum { MANY_OF_1 = 8, MANY_OF_2 = 4, MANY_OF_3 = 4, MANY_OF_4 = 4 };
enum { NARROW = 4, WIDTH_OF_1 = 8, WIDTH_OF_2 = 8, WIDTH_OF_3 = 8, WIDTH_OF_4 = 4 };
enum { STEPS_OF_1 = 8, STEPS_OF_2 = 8, STEPS_OF_3 = 4, STEPS_OF_4 = 4 };
#define FEW_QUERIES 4
enum { FEW_VECTORS = 4 };
enum { WIDTH_OF_BLOCKS = 4 };
/* qgemm: a vector of sums for each of B, or two for its halves, whose products need one more. */
#if defined(EXT_DOT)
#define DIGIT_ROWS 4
enum { QVR = 14, QVN = 2, QW = 4, QGROUPED_W = 14 };
#define EXT_QROWS(X, k, i) EXT_ROWS(X, k, i)
#else
enum { QVR = 12, QVN = 1, QW = 2, QGROUPED_W = 8 };
#define EXT_QROWS(X, k, i) \
  EXT_ROWS_8(X, k, i)      \
  X(9, k, i) X(10, k, i) X(11, k, i) X(12, k, i)
#define EXT_DOT_WIDE
#endif
#define EXT_SATURATING_NARROW
#define EXT_STORED_PIECES
/* bgemm: as gemm; without the unit, B takes two vectors widened. */
#if defined(EXT_BF16_UNIT)
enum { BVR = 14, BVN = 2, BWIDE_ROWS = 6, BWIDE = 4 };
#define EXT_BROWS(X, k, i) EXT_ROWS(X, k, i)
#else
enum { BVR = 12, BVN = 2, BWIDE_ROWS = 4, BWIDE = 4 };
#define EXT_BROWS(X, k, i) \
  EXT_ROWS_8(X, k, i)      \
  X(9, k, i) X(10, k, i) X(11, k, i) X(12, k, i)
#endif
#define EXT_MASKED_LANES
/* depthwise: 8 sums, 7 weights and the input column. */
enum { TILE_W = 8 };
/* grouped: 14 sums, 6 weights, 2 permutations, the input column and its lanes. */
enum { GROUPED_W = 14, GROUPED_C = 2 };
/* recurrent: 24 sums, 4 vectors of weights, a state. */
enum { RECURRENT_ROWS = 12, RECURRENT_SUMS = 24, RECURRENT_CHAINS = 16 };
enum { RECURRENT_VECTORS = 1, RECURRENT_WIDE = 1 };
#define EXT_RECURRENT_ROWS(X, k, i) \
  EXT_ROWS_8(X, k, i)               \
  X(9, k, i) X(10, k, i) X(11, k, i) X(12, k, i)
#if defined(EXT_DOT)
enum { RECURRENT_BYTE_ROWS = 6 };
#define EXT_RECURRENT_BYTE_ROWS(X, k, i) EXT_ROWS_4(X, k, i) X(5, k, i) X(6, k, i)
#else
enum { RECURRENT_BYTE_ROWS = 2 };
#define EXT_RECURRENT_BYTE_ROWS(X, k, i) X(1, k, i) X(2, k, i)
#endif
/* peak: two units of four cycles need 8 chains; 12 with two factors fit 16 registers as well. */
enum { PEAK_CHAINS = 12 };

#elif defined(EXT_SIMD_AVX2) /* 16 registers of 8 floats */
#define VL 8
/* gemm: 6 x 2 accumulators, 2 vectors of B, 1-2 broadcasts of A: 16 registers. */
enum { MR = 6, NV = 2 };
#define EXT_ROWS(X, k, i) EXT_ROWS_4(X, k, i) X(5, k, i) X(6, k, i)
enum { MOST_COLUMNS = 8 };
enum { MANY_OF_1 = 8, MANY_OF_2 = 4, MANY_OF_3 = 3, MANY_OF_4 = 2 };
enum { NARROW = 8, WIDTH_OF_1 = 8, WIDTH_OF_2 = 4, WIDTH_OF_3 = 4, WIDTH_OF_4 = 2 };
enum { STEPS_OF_1 = 8, STEPS_OF_2 = 4, STEPS_OF_3 = 2, STEPS_OF_4 = 2 };
#define FEW_QUERIES 2
enum { FEW_VECTORS = 4 };
enum { WIDTH_OF_BLOCKS = 4 };
/* qgemm: 12 vectors of sums, 2 of B, 1 of A, 1 of products. */
#define EXT_QROWS(X, k, i) EXT_ROWS(X, k, i)
#if defined(EXT_DOT)
#define DIGIT_ROWS 2
enum { QVR = 6, QVN = 2, QW = 2, QGROUPED_W = 8 };
#else
enum { QVR = 6, QVN = 1, QW = 1, QGROUPED_W = 4 };
#define EXT_DOT_WIDE
#endif
#define EXT_SATURATING_NARROW
/* bgemm: 8 vectors of sums, 4 of B widened, 2 of A. */
enum { BVR = 4, BVN = 2, BWIDE_ROWS = 2, BWIDE = 4 };
#define EXT_BROWS(X, k, i) EXT_ROWS_4(X, k, i)
/* depthwise: weights come from L1 for each tile anew. */
enum { TILE_W = 4 };
/* grouped: 8 sums, 3 weights, the permutation, the input column and its lanes. */
enum { GROUPED_W = 8, GROUPED_C = 1 };
/* recurrent: 12 sums, a state and the weights; of one row 8 sums, which take weights as they come.
 */
enum { RECURRENT_ROWS = 6, RECURRENT_SUMS = 12, RECURRENT_CHAINS = 8 };
enum { RECURRENT_VECTORS = 1, RECURRENT_WIDE = 2 };
#define EXT_RECURRENT_ROWS(X, k, i) EXT_ROWS(X, k, i)
#if defined(EXT_DOT)
enum { RECURRENT_BYTE_ROWS = 2 };
#define EXT_RECURRENT_BYTE_ROWS(X, k, i) X(1, k, i) X(2, k, i)
#else
enum { RECURRENT_BYTE_ROWS = 1 };
#define EXT_RECURRENT_BYTE_ROWS(X, k, i) X(1, k, i)
#endif
enum { PEAK_CHAINS = 12 };

#elif defined(EXT_SIMD_NEON) /* 32 registers of 4 floats */
#define VL 4
/* gemm: 8 x 2 accumulators, 8 vectors of A, 2 of B: 26 of 32 registers; the rest lets loads go
 * ahead. */
enum { MR = 8, NV = 2 };
#define EXT_ROWS(X, k, i) EXT_ROWS_8(X, k, i)
#define EXT_LANE_FMA
/* gemv: beyond 7 columns the tile of gemm.c is full: a quarter fewer instructions. */
enum { MOST_COLUMNS = 7 };
enum { MANY_OF_1 = 8, MANY_OF_2 = 4, MANY_OF_3 = 4, MANY_OF_4 = 4 };
enum { NARROW = 8, WIDTH_OF_1 = 8, WIDTH_OF_2 = 8, WIDTH_OF_3 = 8, WIDTH_OF_4 = 4 };
enum { STEPS_OF_1 = 8, STEPS_OF_2 = 8, STEPS_OF_3 = 4, STEPS_OF_4 = 4 };
#define FEW_QUERIES 4
enum { FEW_VECTORS = 4 };
enum { WIDTH_OF_BLOCKS = 4 };
/* qgemm: 24 vectors of sums, 4 or 2 of B, 1 of A, 1 of products. */
#if defined(EXT_DOT)
enum { QVR = 6, QVN = 4, QW = 4, QGROUPED_W = 14 };
#else
enum { QVR = 6, QVN = 2, QW = 2, QGROUPED_W = 8 };
#endif
#define EXT_QROWS(X, k, i) EXT_ROWS_4(X, k, i) X(5, k, i) X(6, k, i)
#define EXT_DOT_SIGNED
/* bgemm: 16 vectors of sums, 4 of B widened, 2 of A. */
enum { BVR = 8, BVN = 2, BWIDE_ROWS = 2, BWIDE = 8 };
#define EXT_BROWS(X, k, i) EXT_ROWS_8(X, k, i)
enum { TILE_W = 8 };
enum { GROUPED_W = 14, GROUPED_C = 2 };
/* recurrent: 24 sums, the weights, a state; of one row 16 sums. */
enum { RECURRENT_ROWS = 6, RECURRENT_SUMS = 24, RECURRENT_CHAINS = 16 };
enum { RECURRENT_VECTORS = 2, RECURRENT_WIDE = 4, RECURRENT_BYTE_ROWS = 6 };
#define EXT_RECURRENT_ROWS(X, k, i) EXT_ROWS_4(X, k, i) X(5, k, i) X(6, k, i)
#define EXT_RECURRENT_BYTE_ROWS(X, k, i) EXT_RECURRENT_ROWS(X, k, i)
/* peak: some cores have four units; the sum is what the multiply-add adds to. */
enum { PEAK_CHAINS = 24 };
#define EXT_PEAK_ADDS

#else /* any CPU: as for the 16 registers of 4 floats of x86-64 */
#define VL 4
/* gemm: 4 x 2 accumulators, 2 vectors of B, broadcasts of A. */
enum { MR = 4, NV = 2 };
#define EXT_ROWS(X, k, i) EXT_ROWS_4(X, k, i)
enum { MOST_COLUMNS = 8 };
enum { MANY_OF_1 = 8, MANY_OF_2 = 4, MANY_OF_3 = 3, MANY_OF_4 = 2 };
enum { NARROW = 8, WIDTH_OF_1 = 8, WIDTH_OF_2 = 4, WIDTH_OF_3 = 4, WIDTH_OF_4 = 4 };
enum { STEPS_OF_1 = 8, STEPS_OF_2 = 4, STEPS_OF_3 = 2, STEPS_OF_4 = 2 };
#define FEW_QUERIES 2
enum { FEW_VECTORS = 4 };
enum { WIDTH_OF_BLOCKS = 4 };
/* qgemm: 4 vectors of sums, 2 of B, 2 of A, 4 of products. */
enum { QVR = 4, QVN = 1, QW = 1, QGROUPED_W = 4 };
#define EXT_QROWS(X, k, i) EXT_ROWS_4(X, k, i)
#define EXT_DOT_WIDE
/* bgemm: 8 vectors of sums, 4 of B widened, 2 of A, 1 of products. */
enum { BVR = 4, BVN = 2, BWIDE_ROWS = 1, BWIDE = 8 };
#define EXT_BROWS(X, k, i) EXT_ROWS_4(X, k, i)
enum { TILE_W = 4 };
/* grouped: 8 sums, 3 weights, the permutation, the input column and its lanes. */
enum { GROUPED_W = 8, GROUPED_C = 1 };
enum { RECURRENT_ROWS = 4, RECURRENT_SUMS = 12, RECURRENT_CHAINS = 8 };
enum { RECURRENT_VECTORS = 1, RECURRENT_WIDE = 2, RECURRENT_BYTE_ROWS = 2 };
#define EXT_RECURRENT_ROWS(X, k, i) EXT_ROWS_4(X, k, i)
#define EXT_RECURRENT_BYTE_ROWS(X, k, i) X(1, k, i) X(2, k, i)
enum { PEAK_CHAINS = 12 };
#endif

/* Beginnings of EXT_ROWS, which gives X(rows, k, i) for each number of rows of a tile. */
#define EXT_ROWS_4(X, k, i) X(1, k, i) X(2, k, i) X(3, k, i) X(4, k, i)
#define EXT_ROWS_8(X, k, i) EXT_ROWS_4(X, k, i) X(5, k, i) X(6, k, i) X(7, k, i) X(8, k, i)

#endif /* EXT_TILE_CONFIG_H_ */
