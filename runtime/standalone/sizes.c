/*
 * Axes whose sizes are chosen at run time: how large all tensors are, and what a run then needs.
 */
#include "instance.h"

static int32_t tensor_count(const ext_model* model) {
  return model->input_count + model->output_count + model->state_count;
}

/* A tensor of a model by its number: inputs, outputs and states one after another. */
static const byoc_tensor* tensor_of(const ext_model* model, int32_t index) {
  if (index < model->input_count) return &model->inputs[index];
  index -= model->input_count;
  return index < model->output_count ? &model->outputs[index]
                                     : &model->states[index - model->output_count];
}

static size_t extent_count(const ext_model* model) {
  size_t total = 0;
  for (int32_t i = 0; i < tensor_count(model); i++) total += (size_t)tensor_of(model, i)->ndim;
  return total;
}

/* The tensors, the sizes of the axes, the rows that states have, all extents, and sizes that the
 * axes had before. */
size_t ext_sizes_bytes(const ext_model* model) {
  if (!model->measure) return 0;
  const size_t numbers = 2 * (size_t)model->axis_count + 1 + extent_count(model);
  return numbers * sizeof(int64_t) + (size_t)tensor_count(model) * sizeof(byoc_tensor);
}

/* The tensors as they are without sizes. */
static void forget(ext_instance* m) {
  m->sized = 0;
  for (int32_t i = 0; i < tensor_count(m->model); i++) m->tensors[i] = *tensor_of(m->model, i);
}

void ext_sizes_lay_out(ext_instance* m, void* memory) {
  if (!m->model->measure) return;
  m->tensors = memory;
  m->sizes = (int64_t*)(m->tensors + tensor_count(m->model));
  m->needs.extents = m->sizes + m->model->axis_count + 1;
  forget(m);
}

/* Whether an extent is one; the bytes of a tensor so far, times that. */
static byoc_status take_extent(ext_instance* m, byoc_tensor* t, int32_t axis, size_t* bytes) {
  const int64_t extent = t->shape[axis];
  if (extent < 0)
    return ext_instance_fail(m, BYOC_ERR_ARGUMENT,
                             "axis %d of %.200s would be %lld; give larger sizes", (int)axis,
                             t->name, (long long)extent);
  if (__builtin_mul_overflow(*bytes, (size_t)extent, bytes) || *bytes > PTRDIFF_MAX)
    return ext_instance_fail(m, BYOC_ERR_ARGUMENT, "%.200s would be too large", t->name);
  return BYOC_OK;
}

byoc_status ext_sizes_measure(ext_instance* m) {
  if (!m->sized)
    return ext_instance_fail(m, BYOC_ERR_ARGUMENT, "axes have no sizes yet; call %s_resize",
                             m->model->name);
  byoc_status status = (byoc_status)ext_measure_here(m);
  const int64_t* next = m->needs.extents;
  for (int32_t i = 0; !status && i < tensor_count(m->model); i++) {
    byoc_tensor* t = &m->tensors[i];
    size_t bytes = t->alignment; /* an element's */
    t->shape = next;
    for (int32_t axis = 0; !status && axis < t->ndim; axis++)
      status = take_extent(m, t, axis, &bytes);
    t->bytes = bytes;
    next += t->ndim;
  }
  if (!status && m->needs.arena_bytes < 0)
    status = ext_instance_fail(m, BYOC_ERR_ARGUMENT, "a run would need too much memory");
  return status;
}

byoc_status ext_sizes_have_room(ext_instance* m) {
  const int64_t rows = m->sizes[m->model->axis_count], step = m->needs.step;
  if (rows > m->model->most_rows)
    return ext_instance_fail(m, BYOC_ERR_FULL,
                             "states have %lld rows; the network takes at most %lld; reset",
                             (long long)rows, (long long)m->model->most_rows);
  if (step <= m->capacity - rows) return BYOC_OK;
  return ext_instance_fail(m, BYOC_ERR_FULL,
                           "states have %lld of %lld rows, and this run adds %lld; set "
                           "options.capacity, or reset",
                           (long long)rows, (long long)m->capacity, (long long)step);
}

static byoc_status check_sizes(ext_instance* m, const int64_t* sizes) {
  if (!sizes) return ext_instance_fail(m, BYOC_ERR_ARGUMENT, "sizes is NULL");
  for (int32_t i = 0; i < m->model->axis_count; i++) {
    const byoc_axis* axis = &m->model->axes[i];
    if (sizes[i] >= axis->least && sizes[i] <= axis->most) continue;
    return ext_instance_fail(m, BYOC_ERR_ARGUMENT, "axis %d (%.64s) is %lld; need %lld to %lld",
                             (int)i, axis->name, (long long)sizes[i], (long long)axis->least,
                             (long long)axis->most);
  }
  return BYOC_OK;
}

byoc_status ext_model_resize(ext_instance* m, const int64_t* sizes) {
  if (!m) return BYOC_ERR_ARGUMENT;
  if (!ext_instance_enter(m)) return BYOC_ERR_BUSY;
  m->message[0] = '\0';
  byoc_status status = check_sizes(m, sizes);
  if (!status) {
    const size_t bytes = (size_t)m->model->axis_count * sizeof *sizes;
    int64_t* earlier = m->needs.extents + extent_count(m->model);
    const int had_sizes = m->sized;
    memcpy(earlier, m->sizes, bytes);
    memcpy(m->sizes, sizes, bytes);
    m->sized = 1;
    status = ext_sizes_measure(m);
    if (status) memcpy(m->sizes, earlier, bytes);
    if (status && had_sizes) ext_sizes_measure(m);
    if (status && !had_sizes) forget(m);
  }
  ext_instance_leave(m);
  return status;
}

const byoc_tensor* ext_model_inputs(const ext_instance* m, int32_t* count) {
  if (count) *count = m ? m->model->input_count : 0;
  return m ? ext_inputs_of(m) : NULL;
}

const byoc_tensor* ext_model_outputs(const ext_instance* m, int32_t* count) {
  if (count) *count = m ? m->model->output_count : 0;
  return m ? ext_outputs_of(m) : NULL;
}

const byoc_tensor* ext_model_states(const ext_instance* m, int32_t* count) {
  if (count) *count = m ? m->model->state_count : 0;
  return m ? ext_states_of(m) : NULL;
}
