/* The table of sampler options, as an array; see dra/sampler.def. */
#include <stdint.h>

#include "dra/generate.h"

#define IS_WHOLE_double false
#define IS_WHOLE_int64_t true
#define OPTION_ROW(with, kind, type, name, option, json, hf, least, most, usual, help)             \
    {#name,                                                                                        \
     option,                                                                                       \
     json,                                                                                         \
     hf,                                                                                           \
     help,                                                                                         \
     DRA_SAMPLER_##kind,                                                                           \
     IS_WHOLE_##type,                                                                              \
     offsetof(dra_sampler_config, name),                                                           \
     least,                                                                                        \
     most,                                                                                         \
     usual},

static const dra_sampler_option options[] = {DRA_SAMPLER_OPTIONS(OPTION_ROW, )};
enum { OPTIONS = sizeof options / sizeof *options };

const dra_sampler_option *dra_sampler_options(size_t *n)
{
    *n = OPTIONS;
    return options;
}

double dra_sampler_get(const dra_sampler_config *c, const dra_sampler_option *o)
{
    const void *at = (const char *)c + o->offset;
    return o->whole ? (double)*(const int64_t *)at : *(const double *)at;
}

void dra_sampler_set(dra_sampler_config *c, const dra_sampler_option *o, double x)
{
    void *at = (char *)c + o->offset;
    if (o->whole)
        *(int64_t *)at = (int64_t)x;
    else
        *(double *)at = x;
}

bool dra_sampler_is_on(const dra_sampler_config *c, const dra_sampler_option *o)
{
    const double x = dra_sampler_get(c, o);
    return x != 0 && x != o->usual;
}

const dra_sampler_option *dra_sampler_find(const dra_sampler_config *c, dra_sampler_kind kind)
{
    for (const dra_sampler_option *o = options; o < options + OPTIONS; o++)
        if (o->kind == kind && dra_sampler_is_on(c, o)) return o;
    return NULL;
}
