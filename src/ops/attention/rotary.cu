/* rotary: pair c of x[b, h, t] is rotated by an angle of pos[b, t], see rotary.c for formula
 * and options. A thread has a pair of a place (b, t), whose cosine and sine all heads share, and
 * goes through some of the heads. Angles are doubles: near position 100,000 a float is off by
 * 0.004. */
#include "ops/attention/rotary.h"
#include "ops/movement/move.cuh"

enum {
    PAIRS = 64,      /* of one launch: their speeds are its arguments */
    MOST_GROWTH = 80 /* the first pair grows fastest: beyond e^80 floats would soon be infinite */
};

struct turn {
    dra_fault_place fault;
    int64_t         H, T, places;  /* B T */
    int64_t         first, n;      /* pairs */
    int64_t         step, apart;   /* between pairs, and between the two of a pair */
    int64_t         b, h, t;       /* strides of x */
    int64_t         pos_b, pos_t;  /* of pos */
    int64_t         y_h, y_b, y_t; /* of y */
    double          center;        /* of xPos */
    double          gain;
    int64_t         limit;         /* 0: none */
    double          speed[PAIRS];  /* radians a position */
    double          growth[PAIRS]; /* ln f a position from the center */
    const int32_t  *pos;
};

/* The heads of this part. Several are read before any is written, which hides how long reading
 * takes: y may be x. */
__device__ static void turn_heads(const turn &u, float cosine, float sine, const float *x, float *y)
{
    enum { AHEAD = 4 };
    for (int64_t first = blockIdx.y; first < u.H; first += AHEAD * gridDim.y) {
        float p[AHEAD], q[AHEAD];
        for (int k = 0; k < AHEAD; k++) {
            const int64_t h = first + k * (int64_t)gridDim.y;
            p[k] = h < u.H ? x[h * u.h] : 0;
            q[k] = h < u.H ? x[h * u.h + u.apart] : 0;
        }
        for (int k = 0; k < AHEAD; k++) {
            const int64_t h = first + k * (int64_t)gridDim.y;
            if (h >= u.H) continue;
            y[h * u.y_h] = p[k] * cosine - q[k] * sine;
            y[h * u.y_h + u.apart] = p[k] * sine + q[k] * cosine;
        }
    }
}

__global__ static void turn_kernel(const __grid_constant__ turn u, const float *x, float *y)
{
    DRA_EACH(i, u.places * u.n)
    {
        const int64_t place = i / u.n, b = place / u.T, t = place - b * u.T;
        const int     pair = (int)(i - place * u.n);
        const int32_t pos = u.pos[b * u.pos_b + t * u.pos_t];
        const double  from_center = (double)pos - u.center;
        const double  angle = (double)pos * u.speed[pair], growth = u.growth[pair];
        if (u.first + pair == 0 && blockIdx.y == 0 && fabs(from_center * growth) > MOST_GROWTH)
            dra_fault_raise(u.fault, place, DRA_FAULT_FAR, pos,
                            (int64_t)(u.center + MOST_GROWTH / fabs(growth)));
        if (u.limit && pair == 0 && blockIdx.y == 0 && pos >= u.limit)
            dra_fault_raise(u.fault, place, DRA_FAULT_PAST, pos, u.limit - 1);
        const double f = u.gain * (growth == 0 ? 1 : exp(from_center * growth));
        double       sine, cosine;
        sincos(angle, &sine, &cosine);
        const int64_t at = (u.first + pair) * u.step;
        turn_heads(u, (float)(f * cosine), (float)(f * sine), x + b * u.b + t * u.t + at,
                   y + b * u.y_b + t * u.y_t + at);
    }
}

static turn turn_of(const dra_call *c)
{
    const dra_rotary_attr *a = static_cast<const dra_rotary_attr *>(c->attr);
    const dra_tensor      *x = &c->in[0], *pos = &c->in[1], *y = &c->out[0];
    turn                   u = {};
    u.fault = dra_fault_of(c);
    u.H = x->shape.dim[1], u.T = x->shape.dim[2], u.places = x->shape.dim[0] * u.T;
    u.step = a->k.halves ? 1 : 2;
    u.apart = a->k.halves ? dra_div_up(a->k.width, 2) : 1;
    u.b = x->stride[0], u.h = x->stride[1], u.t = x->stride[2];
    u.pos_b = pos->stride[0], u.pos_t = pos->stride[1];
    u.y_b = y->stride[0], u.y_h = y->stride[1], u.y_t = y->stride[2];
    u.center = a->k.xpos_center;
    u.gain = a->k.gain;
    u.limit = a->k.limit;
    u.pos = static_cast<const int32_t *>(pos->data);
    return u;
}

static void set_pairs(turn *u, const dra_rotary_attr *a, int64_t first, int64_t pairs)
{
    const double width = (double)a->k.width;
    u->first = first;
    u->n = dra_imin(PAIRS, pairs - first);
    for (int64_t i = 0; i < u->n; i++) {
        const double c2 = 2 * (double)(first + i), zeta = (c2 + 0.4 * width) / (1.4 * width);
        u->speed[i] = dra_rotary_attr_speed(a, first + i);
        u->growth[i] = a->k.xpos_base == 0 ? 0 : log(zeta) / a->k.xpos_base;
        if (a->k.xpos_invert) u->growth[i] = -u->growth[i];
    }
}

/* As many parts of the heads as it takes to keep the device busy. */
static void start_turn(const dra_call *c, const turn *u)
{
    const int64_t  threads = u->places * u->n, enough = 1024 * dra_cuda_of(c)->processors;
    const unsigned parts = (unsigned)dra_imin(u->H, dra_imin(65535, dra_div_up(enough, threads)));
    DRA_LAUNCH(c, turn_kernel, dim3(dra_grid(c, threads, DRA_THREADS), parts), DRA_THREADS, 0, *u,
               static_cast<const float *>(c->in[0].data), static_cast<float *>(c->out[0].data));
}

/* Channels from `from` on. */
static dra_tensor rest_of(const dra_tensor *x, int64_t from)
{
    dra_tensor rest = *x;
    rest.data = static_cast<float *>(x->data) + from;
    rest.shape.dim[3] -= from;
    return rest;
}

static void launch(const dra_call *c)
{
    const dra_rotary_attr *a = static_cast<const dra_rotary_attr *>(c->attr);
    const int64_t          pairs = dra_div_up(a->k.width, 2);
    turn                   u = turn_of(c);
    for (int64_t first = 0; first < pairs; first += PAIRS) {
        set_pairs(&u, a, first, pairs);
        start_turn(c, &u);
    }
    if (c->in[0].data == c->out[0].data || 2 * pairs == dra_last(&c->in[0])) return;
    const dra_cuda_part part = {rest_of(&c->out[0], 2 * pairs), rest_of(&c->in[0], 2 * pairs)};
    dra_cuda_move(c, 1, &part, nullptr);
}

const dra_cuda_kernel dra_cuda_rotary = {
    {"rotary", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_ROWS, 1, false, nullptr, nullptr},
    launch,
    false};
