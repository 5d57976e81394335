/* Lists of values and the runs of their combinations. */
#include "sweep.h"
#include "io/memory.h"

#include <stdlib.h>
#include <string.h>

/* The length up to the next comma outside brackets and quotes. */
static size_t one_value(const char *text)
{
    int    depth = 0;
    bool   quoted = false;
    size_t n = 0;
    for (; text[n]; n++) {
        if (text[n] == '"') quoted = !quoted;
        if (quoted) continue;
        if (strchr("[{", text[n])) depth++;
        if (strchr("]}", text[n])) depth--;
        if (text[n] == ',' && depth <= 0) break;
    }
    return n;
}

static bool append_value(cli_axis *a, const char *text, size_t n)
{
    if (n == 0) return false;
    char **value = realloc(a->value, (size_t)(a->count + 1) * sizeof *value);
    if (value) a->value = value;
    char *copy = value ? strndup(text, n) : NULL;
    if (!copy) {
        cli_memory_note(DRA_ERR_MEMORY);
        return false;
    }
    value[a->count++] = copy;
    return true;
}

bool cli_sweep_add(cli_sweep *s, const char *name, bool key, const char *list)
{
    if (s->n == CLI_AXES) return false;
    cli_axis *a = &s->axis[s->n++];
    *a = (cli_axis){.name = name, .key = key, .with = s->n - 1};
    for (;;) {
        const size_t n = one_value(list);
        if (!append_value(a, list, n)) return false;
        if (!list[n]) return true;
        list += n + 1;
    }
}

bool cli_sweep_couple(cli_sweep *s)
{
    if (s->n < 2) return false;
    cli_axis *last = &s->axis[s->n - 1];
    last->with = s->axis[s->n - 2].with;
    return last->count == s->axis[last->with].count;
}

void cli_sweep_free(cli_sweep *s)
{
    for (int i = 0; i < s->n; i++) {
        for (int64_t k = 0; k < s->axis[i].count; k++) free(s->axis[i].value[k]);
        free(s->axis[i].value);
    }
    *s = (cli_sweep){0};
}

int64_t cli_sweep_runs(const cli_sweep *s)
{
    int64_t n = 1;
    for (int i = 0; i < s->n; i++)
        if (s->axis[i].with == i) n *= s->axis[i].count;
    return n;
}

const char *cli_sweep_value(const cli_sweep *s, int axis, int64_t run)
{
    for (int i = s->n - 1; i > s->axis[axis].with; i--)
        if (s->axis[i].with == i) run /= s->axis[i].count;
    return s->axis[axis].value[run % s->axis[axis].count];
}
