/* The entry points of cuBLASLt that this project's code calls. Products go into the double's streams. */

#define _GNU_SOURCE
#include "double.h"

#include <stdlib.h>
#include <string.h>

/* Statuses, types and attributes as cuBLASLt numbers them (cublasLt.h). */
enum {
    BLAS_SUCCESS = 0,
    BLAS_NOT_INITIALIZED = 1,
    BLAS_INVALID_VALUE = 7,
    BLAS_EXECUTION_FAILED = 13,
    BLAS_NOT_SUPPORTED = 15,
    REAL_32F = 0,
    COMPUTE_32F = 68,
    COMPUTE_32F_FAST_TF32 = 77,
    PREFERENCE_WORKSPACE_BYTES = 1,
};

/* What a handle of each kind begins with: one of another kind, or one that was destroyed, is known for what it is. */
enum kind { GONE, HANDLE = 0x48414e44, LAYOUT, DESCRIPTION, PREFERENCE, ALGORITHM };

struct object {
    enum kind kind;
    uint64_t rows, columns;
    int64_t ld;
    uint64_t workspace_bytes;
};

struct algorithm { uint64_t kind, workspace_bytes, m, n, k, unused[3]; };

struct heuristic {
    struct algorithm algorithm;
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
};

static bool is(const struct object *object, enum kind kind)
{
    return object && object->kind == kind;
}

static int make(struct object **made, struct object object)
{
    *made = malloc(sizeof object);
    if (!*made)
        abort();
    **made = object;
    return BLAS_SUCCESS;
}

/* The memory stays, marked: what uses it after this is refused. A test makes some dozens. */
static int end(struct object *object, enum kind kind)
{
    if (!is(object, kind))
        return BLAS_INVALID_VALUE;
    object->kind = GONE;
    return BLAS_SUCCESS;
}

EXPORT int cublasLtCreate(struct object **handle)
{
    pthread_mutex_lock(&lock);
    result status = in_context();
    pthread_mutex_unlock(&lock);
    return status ? BLAS_NOT_INITIALIZED : make(handle, (struct object){ .kind = HANDLE });
}

EXPORT int cublasLtDestroy(struct object *handle)
{
    return end(handle, HANDLE);
}

EXPORT int cublasLtMatrixLayoutCreate(struct object **layout, int type, uint64_t rows, uint64_t columns, int64_t ld)
{
    if (type != REAL_32F || rows == 0 || columns == 0 || ld < (int64_t)rows)
        return BLAS_INVALID_VALUE;
    return make(layout, (struct object){ .kind = LAYOUT, .rows = rows, .columns = columns, .ld = ld });
}

EXPORT int cublasLtMatrixLayoutDestroy(struct object *layout)
{
    return end(layout, LAYOUT);
}

EXPORT int cublasLtMatmulDescCreate(struct object **description, int compute, int scale)
{
    if ((compute != COMPUTE_32F && compute != COMPUTE_32F_FAST_TF32) || scale != REAL_32F)
        return BLAS_NOT_SUPPORTED;
    return make(description, (struct object){ .kind = DESCRIPTION });
}

EXPORT int cublasLtMatmulDescDestroy(struct object *description)
{
    return end(description, DESCRIPTION);
}

EXPORT int cublasLtMatmulPreferenceCreate(struct object **preference)
{
    return make(preference, (struct object){ .kind = PREFERENCE });
}

EXPORT int cublasLtMatmulPreferenceSetAttribute(struct object *preference, int attribute, const void *value, size_t bytes)
{
    if (!is(preference, PREFERENCE) || attribute != PREFERENCE_WORKSPACE_BYTES || bytes != sizeof(uint64_t))
        return BLAS_INVALID_VALUE;
    memcpy(&preference->workspace_bytes, value, bytes);
    return BLAS_SUCCESS;
}

EXPORT int cublasLtMatmulPreferenceDestroy(struct object *preference)
{
    return end(preference, PREFERENCE);
}

static bool fit(const struct object *a, const struct object *b, const struct object *c, const struct object *d)
{
    bool are = is(a, LAYOUT) && is(b, LAYOUT) && is(c, LAYOUT) && is(d, LAYOUT);
    return are && a->columns == b->rows && c->rows == a->rows && c->columns == b->columns && d->rows == c->rows && d->columns == c->columns;
}

EXPORT int cublasLtMatmulAlgoGetHeuristic(struct object *handle, struct object *description, struct object *a, struct object *b, struct object *c,
    struct object *d, struct object *preference, int asked, struct heuristic *results, int *found)
{
    *found = 0;
    if (!is(handle, HANDLE) || !is(description, DESCRIPTION) || !is(preference, PREFERENCE) || asked < 1 || !fit(a, b, c, d))
        return BLAS_INVALID_VALUE;
    struct algorithm algorithm = { .kind = ALGORITHM, .workspace_bytes = preference->workspace_bytes, .m = c->rows, .n = c->columns, .k = a->columns };
    *results = (struct heuristic){ .algorithm = algorithm, .workspace_bytes = preference->workspace_bytes, .waves = 1 };
    *found = 1;
    return BLAS_SUCCESS;
}

/* As long as the device would take: a launch, and two operations for each element of the three dimensions. */
static int64_t product_ns(uint64_t m, uint64_t n, uint64_t k)
{
    double operations = 2.0 * (double)m * (double)n * (double)k;
    return (int64_t)(setting("LAUNCH_US", 100) * 1e3 + operations / (setting("TFLOPS", 100) * 1e3));
}

static uint64_t matrix_bytes(const struct object *layout)
{
    return layout->columns * (uint64_t)layout->ld * sizeof(float);
}

EXPORT int cublasLtMatmul(struct object *handle, struct object *description, const float *alpha, uint64_t a, struct object *layout_a, uint64_t b,
    struct object *layout_b, const float *beta, uint64_t c, struct object *layout_c, uint64_t d, struct object *layout_d,
    const struct algorithm *algorithm, uint64_t workspace, size_t workspace_bytes, struct stream *stream)
{
    bool fits = is(handle, HANDLE) && is(description, DESCRIPTION) && fit(layout_a, layout_b, layout_c, layout_d);
    if (!fits || !alpha || !beta || !algorithm || algorithm->kind != ALGORITHM || workspace_bytes < algorithm->workspace_bytes)
        return BLAS_INVALID_VALUE;
    uint64_t m = layout_d->rows, n = layout_d->columns, k = layout_a->columns;
    if (algorithm->m != m || algorithm->n != n || algorithm->k != k || !(a & b & c & d & workspace & DEVICE_BIT))
        return BLAS_INVALID_VALUE;
    struct product product = {
        .a = a, .b = b, .c = c, .d = d, .workspace = workspace, .workspace_bytes = workspace_bytes, .a_bytes = matrix_bytes(layout_a),
        .b_bytes = matrix_bytes(layout_b), .c_bytes = matrix_bytes(layout_c), .d_bytes = matrix_bytes(layout_d),
    };
    pthread_mutex_lock(&lock);
    int status = in_context() ? BLAS_EXECUTION_FAILED : stream_exists(stream) ? BLAS_SUCCESS : BLAS_INVALID_VALUE;
    if (status == BLAS_SUCCESS)
        stream_push(stream, (struct op){ .what = PRODUCT, .takes_ns = product_ns(m, n, k), .product = product });
    pthread_mutex_unlock(&lock);
    return status;
}
