/* A memory in a shared object, with options of its own.
 *   leak: m' = g m + (1 - g) x,  g = 2^(-1 / half_life) for all; with `learned` one for each head,
 *   which starts there.
 *
 *     $ cc -shared -fPIC -o leak.so leak.c $(pkg-config --cflags --libs dra)
 *     $ dra train --memory-plugin leak.so --preset dra-gru-tiny --set mixer.memory=own:leak \
 *         --set mixer.half_life=20 --data book.txt --out run
 *     $ dra generate --memory-plugin leak.so --model run */
#include <dra/dra.h>
#include <math.h>
#include <stddef.h>

typedef struct leak_options {
    double half_life; /* in tokens; 0: 8 */
    bool   learned;
} leak_options;

static double first_gamma(const leak_options *o)
{
    return exp2(-1 / (o->half_life > 0 ? o->half_life : 8));
}

static void declare(const dra_memory_sizes *s, const char *prefix, dra_specs *params,
                    dra_specs *state)
{
    static const char *const names[] = {"leak_0", "leak_1"};
    const leak_options      *o = s->options;
    const double             g = first_gamma(o);
    if (o->learned)
        dra_specs_add(params, prefix,
                      &(dra_spec){.name = "beta",
                                  .shape = DRA_SHAPE(s->H, 1),
                                  .number = log(g / (1 - g)),
                                  .decay = true,
                                  .group = DRA_PARAM_DECAY});
    for (int i = 0; i < s->streams; i++) /* keys and values, or both as one */
        dra_specs_add(state, prefix,
                      &(dra_spec){.name = names[i], .shape = DRA_SHAPE(s->H, s->stream[i].width)});
}

static void step(dra_graph *g, const dra_memory_call *c, dra_memory_result *r)
{
    const leak_options *o = c->sizes->options;
    const dra_value     gamma = o->learned ? dra_sigmoid(g, c->param[0])
                                           : dra_number(g, first_gamma(o));
    for (int i = 0; i < c->sizes->streams; i++) {
        const dra_value x = dra_mul(g, dra_affine(g, gamma, -1, 1), c->x[i]);
        r->state[i] = dra_add(g, dra_mul(g, gamma, c->state[i]), x);
        r->item[i] = r->state[i];
    }
}

static const dra_memory_option options[] = {
    {"half_life", DRA_OPTION_REAL, offsetof(leak_options, half_life), 0, 1e6, .unset = "8"},
    {"learned", DRA_OPTION_BOOL, offsetof(leak_options, learned)},
    {0}};
static const char *const retrievals[] = {"time", "window", "none", NULL};
static const dra_memory  leak = {.name = "leak",
                                 .retrievals = retrievals,
                                 .declare = declare,
                                 .step = step,
                                 .options_size = sizeof(leak_options),
                                 .options = options};

DRA_MEMORY_PLUGIN(&leak)
