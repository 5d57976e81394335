/* What a case is compared with: the larger of two times, that of its arithmetic at peak and that of
 * its passes over memory by a loop that does nothing else.
 *
 * On the CPU both are measured next to every timing of the case, because other programs and the
 * clock change them from moment to moment. A GPU has nobody else to serve, so that its limits,
 * which take products of a size of their own, are measured once. */
#include "bench.h"

/* Passes that take less say more about the clock and the moment than about memory. */
static const double shortest = 5e-3;

/* Seconds of a pass, as the mean of enough of them to keep a small array in the cache it fits
 * in. */
static double time_passes(const bench_limit *l, bool streaming)
{
    double sum = 0;
    for (int64_t i = 0; i < l->passes; i++) sum += dra_bandwidth_pass(l->stream, streaming);
    return sum / (double)l->passes;
}

/* Decided by the best of three of each: the median of a busy moment may tell another story. */
static bool memory_bound(const bench_limit *l)
{
    double pass = time_passes(l, false), flops = l->peak(l->device);
    for (int i = 0; i < 2 && l->flops > 0; i++) {
        const double again = time_passes(l, false), burst = l->peak(l->device);
        if (again < pass) pass = again;
        if (burst > flops) flops = burst;
    }
    return pass >= l->flops / flops;
}

static dra_status open_turns(const bench_session *s, const bench_work *w, bench_limit *l,
                             dra_error *err)
{
    const bool pairs = w->precision == DRA_PRECISION_BF16 && s->limits.bf16_flops > 0;
    l->peak = pairs ? dra_bf16_flops_measure : dra_flops_measure;
    l->bound = w->flops > 0 ? "compute" : NULL;
    if (!w->stream.bytes) return DRA_OK;
    const dra_status st = dra_bandwidth_create(s->device, &w->stream, &l->stream, err);
    if (st != DRA_OK) return st;
    dra_bandwidth_pass(l->stream, false);
    const double once = dra_bandwidth_pass(l->stream, false);
    if (once > 0 && once < shortest) l->passes += (int64_t)(shortest / once);
    l->stores = w->stream.writes + w->stream.updates > 0;
    if (memory_bound(l))
        l->bound = "memory";
    else
        bench_limit_close(l);
    return DRA_OK;
}

/* Arrays that are read and arrays that are written go in pairs as fast as a copy; the rest goes as
 * fast as reading or writing alone. */
static double pass_seconds(const dra_limits *l, const dra_bandwidth_config *c)
{
    const int reads = c->reads + c->updates, writes = c->writes + c->updates;
    const int pairs = reads < writes ? reads : writes;
    return (double)c->bytes *
           (2 * pairs / l->copy + (reads - pairs) / l->read + (writes - pairs) / l->write);
}

static void open_known(const bench_session *s, const bench_work *w, bench_limit *l)
{
    const dra_limits *d = &s->limits;
    const double      flops = w->precision == DRA_PRECISION_BF16   ? d->bf16_flops
                              : w->precision == DRA_PRECISION_TF32 ? d->tf32_flops
                                                                   : d->flops;
    const double      compute = w->flops / flops, memory = pass_seconds(d, &w->stream);
    l->known = memory > compute ? memory : compute;
    l->bound = l->known <= 0 ? NULL : memory > compute ? "memory" : "compute";
}

dra_status bench_limit_open(const bench_session *s, const bench_work *w, bench_limit *l,
                            dra_error *err)
{
    *l = (bench_limit){.device = s->device, .flops = w->flops, .passes = 1};
    if (!s->gpu) return open_turns(s, w, l, err);
    open_known(s, w, l);
    return DRA_OK;
}

void bench_limit_close(bench_limit *l)
{
    dra_bandwidth_destroy(l->stream);
    l->stream = NULL;
}

double bench_limit_percent(const bench_limit *l, double seconds, double *streaming)
{
    *streaming = 0;
    if (!l->bound) return 0;
    if (l->known > 0) return 100 * l->known / seconds;
    if (!l->stream) return 100 * l->flops / l->peak(l->device) / seconds;
    const double pass = time_passes(l, false);
    if (l->stores) *streaming = 100 * time_passes(l, true) / seconds;
    return 100 * pass / seconds;
}
