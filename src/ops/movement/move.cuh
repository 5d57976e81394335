/* Moving elements from one place to another, whatever their strides: copies, parts of concat and
 * pad, the first half of ops that change a few rows of what they are given. */
#ifndef DRA_SRC_OPS_MOVEMENT_MOVE_CUH
#define DRA_SRC_OPS_MOVEMENT_MOVE_CUH

#include "device/cuda/cuda.cuh"

/* to = from, of one shape and dtype; from.data NULL: one number everywhere. */
struct dra_cuda_part {
    dra_tensor to, from;
};

/* All parts, in one launch if there are few. fill: the number, one element in the host's memory. */
void dra_cuda_move(const dra_call *c, int n, const dra_cuda_part *part, const void *fill);

/* The largest of 16, 8, .. bytes in which the elements of all views, n[i] of v[i], can be moved;
 * the views then have elements of this size, and n counts those. */
int dra_cuda_widen(int bytes, int views, dra_view *const *v, int64_t *n);

/* f with an element type of that size as its template argument. bytes is read several times. */
#define DRA_BY_BYTES(bytes, f, ...)                                                                \
    ((bytes) == 16  ? f<float4>(__VA_ARGS__)                                                       \
     : (bytes) == 8 ? f<uint64_t>(__VA_ARGS__)                                                     \
     : (bytes) == 4 ? f<uint32_t>(__VA_ARGS__)                                                     \
     : (bytes) == 2 ? f<uint16_t>(__VA_ARGS__)                                                     \
                    : f<uint8_t>(__VA_ARGS__))

/* The same for fours, of 16 bytes at most; false: they are not neighbours. */
bool dra_cuda_by_four(dra_view *v, int64_t *n);

#endif
