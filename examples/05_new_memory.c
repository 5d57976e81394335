/* A memory of your own, from outside the library: write the step, get the rest.
 *   peak: m' = max(g m, x), a maximum that fades; g = sigmoid(beta) for each head, learned.
 * Below it reads a sequence whole, then in two parts with a state file in between. */
#include <dra/dra.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void declare(const dra_memory_sizes *s, const char *prefix, dra_specs *params,
                    dra_specs *state)
{
    static const char *const names[] = {"peak_0", "peak_1"};
    dra_gamma_declare(s, prefix, "beta", 0, s->stream[0].width, params);
    for (int i = 0; i < s->streams; i++) /* keys and values, or both as one */
        dra_specs_add(state, prefix,
                      &(dra_spec){.name = names[i], .shape = DRA_SHAPE(s->H, s->stream[i].width)});
}

static void step(dra_graph *g, const dra_memory_call *c, dra_memory_result *r)
{
    const dra_value gamma = dra_sigmoid(g, dra_reshape(g, c->param[0], DRA_SHAPE(-1, 1)));
    for (int i = 0; i < c->sizes->streams; i++) {
        r->state[i] = dra_maximum(g, dra_mul(g, gamma, c->state[i]), c->x[i]);
        r->item[i] = r->state[i];
    }
}

static const char *const retrievals[] = {"time", "window", "none", NULL};
const dra_memory         peak = {
            .name = "peak", .retrievals = retrievals, .declare = declare, .step = step};

enum { T = 12, C = 8 };
static dra_error err;

static void must(dra_status status) /* a program may stop at the first error */
{
    if (status == DRA_OK) return;
    fprintf(stderr, "%s\n", err.text);
    exit(1);
}

static void read_tokens(dra_reader *r, dra_states *s, const dra_real *x, int64_t n, dra_real *y)
{
    const size_t bytes = (size_t)n * C * sizeof *x;
    must(dra_reader_read(r, s, n, NULL, 1, &(dra_named){"x", x, bytes}, &err));
    memcpy(y, dra_reader_result(r, "y"), bytes);
}

int main(void)
{
    const dra_mixer_config config = {.dim = C, .heads = 2, .a = {.own = &peak}};
    dra_real               x[T * C], whole[T * C], parts[T * C];
    dra_device            *device;
    dra_mixer             *mixer;
    dra_reader            *reader;
    dra_states            *first, *second;
    must(dra_device_create_cpu(NULL, &device, &err));
    must(dra_mixer_create(&config, &mixer, &err));
    const dra_module *m = dra_mixer_module(mixer);
    must(dra_reader_create(device, m, &reader, &err));
    must(dra_reader_start(reader, 1, &err));
    for (int i = 0; i < T * C; i++) x[i] = (dra_real)((i * 37 % 19 - 9) / 9.0);
    must(dra_states_create(device, m->state, 1, &first, &err));
    read_tokens(reader, first, x, T, whole);
    must(dra_states_reset(first, -1, &err));
    read_tokens(reader, first, x, 5, parts);
    must(dra_states_save(first, dra_specs_fingerprint(m->params), "peak.state", &err));
    must(dra_states_load(device, m->state, dra_specs_fingerprint(m->params), "peak.state", &second,
                         &err));
    read_tokens(reader, second, x + 5 * C, T - 5, parts + 5 * C);
    remove("peak.state");
    const int same = memcmp(whole, parts, sizeof whole) == 0;
    printf("%d tokens whole, and 5 + %d with a file between: %s\n", T, T - 5,
           same ? "the same bits" : "different");
    dra_states_destroy(first), dra_states_destroy(second), dra_reader_destroy(reader);
    dra_mixer_destroy(mixer), dra_device_destroy(device);
    return !same;
}
