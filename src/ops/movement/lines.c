/* Lines along an axis, see lines.h. */
#include "ops/movement/lines.h"

enum {
    WORK = 16384,   /* elements a tile is worth */
    NEIGHBOURS = 32 /* lines next to each other share cache lines: not fewer of them a tile */
};

static int64_t line_count(const dra_shape *s, int axis)
{
    int64_t n = 1;
    for (int32_t i = 0; i < s->rank; i++) n *= i == axis ? 1 : s->dim[i];
    return n;
}

static int64_t lines_per_tile(const dra_shape *s, int axis)
{
    int64_t inner = 1;
    for (int32_t i = s->rank - 1; i > axis; i--) inner *= s->dim[i];
    const int64_t least = dra_imin(NEIGHBOURS, dra_imax(1, inner));
    return dra_imin(DRA_LINES, dra_imax(least, WORK / dra_imax(1, s->dim[axis])));
}

int64_t dra_line_tiles(const dra_shape *s, int axis)
{
    if (dra_shape_count(s) == 0) return 0;
    return dra_div_up(line_count(s, axis), lines_per_tile(s, axis));
}

dra_lines dra_lines_of(const dra_shape *s, int axis, int64_t tile)
{
    const int64_t each = lines_per_tile(s, axis), first = tile * each;
    return (dra_lines){first, dra_imin(each, line_count(s, axis) - first)};
}

bool dra_line_starts(const dra_tensor *t, int axis, dra_lines lines, int64_t *at)
{
    bool adjacent = true;
    for (int64_t k = 0; k < lines.n; k++) {
        int64_t rest = lines.first + k;
        at[k] = 0;
        for (int32_t i = t->shape.rank - 1; i >= 0; i--) {
            if (i == axis) continue;
            at[k] += rest % t->shape.dim[i] * t->stride[i];
            rest /= t->shape.dim[i];
        }
        adjacent = adjacent && at[k] == at[0] + k;
    }
    return adjacent;
}

int dra_axis_find(dra_graph *g, const char *op, dra_value x, int axis)
{
    if (!dra_check_values(g, op, 1, &x)) return -1;
    const int at = dra_axis_of(axis, dra_type_of(g, x)->shape.rank);
    if (at < 0)
        dra_build_fail(g, op, DRA_ERR_SHAPE, "x %s has no axis %d", dra_type_text(g, x), axis);
    return at;
}
