/*
 * ext_trees.h - the C interface of ensembles of decision trees; part of ext_kernels.h, which
 * includes it.
 */
#ifndef EXT_TREES_H_
#define EXT_TREES_H_

#include "ext_common.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the values of the leaves that a row reaches become. */
typedef enum { EXT_TREES_SUM, EXT_TREES_LEAST, EXT_TREES_GREATEST } ext_trees_kind;

/* A branch goes on at `child` where x[feature] <= threshold, with EXT_TREE_EQUAL in its tag where
 * they are equal, and with EXT_TREE_ABSENT where x[feature] is NaN as well; else at child + 1. Both
 * lie behind it.  A leaf has the place before its own as child, the threshold NaN and feature 0;
 * its values are the row tag / 4 of `values`. */
#define EXT_TREE_ABSENT 1
#define EXT_TREE_EQUAL 2
typedef struct {
  float threshold;
  int32_t feature, child, tag;
} ext_tree_node;

/* y[r][targets[v] + w] = sum, or least or greatest, over the trees of values[v][w], v the leaf that
 * row r of x reaches from the root of a tree; where no leaf gives a target anything, it is 0.
 * x is dense [rows, features], nodes are of ext_tree_node, roots and depths are of each tree (steps
 * to its farthest leaf), values [leaves, width], y [rows, outputs].  For other kinds than a sum,
 * width = outputs.  `plain`: no branch has a tag. */
typedef struct {
  int64_t rows, features, trees, width, outputs;
  ext_trees_kind kind;
  int32_t plain;
} ext_trees_params;
int ext_trees(const ext_trees_params* p, const float* x, const void* nodes, const int32_t* roots,
              const int32_t* depths, const float* values, const int32_t* targets, float* y);

/* y[r][f] = 2 k where x[r][f] is the number k of the cuts of column f, and 2 k - 1 where it lies
 * below that and above all before it; NaN where it is NaN.  The cuts of a column ascend, stand
 * behind those of the columns before, and begin at first[f]; first[features] is how many there are.
 * x and y are dense [rows, features]. So comparisons of doubles with the cuts become such of
 * floats. */
typedef struct {
  int64_t rows, features;
} ext_cuts_params;
int ext_cuts(const ext_cuts_params* p, const double* x, const double* cuts, const int32_t* first,
             float* y);

#ifdef __cplusplus
}
#endif

#endif /* EXT_TREES_H_ */
