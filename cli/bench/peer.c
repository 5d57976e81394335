/* oneDNN's sgemm to compare with ours, in the same process. It is loaded when a product is
 * measured, so neither the build nor an installed program depends on it. Its own threads (OpenMP)
 * spin for a while after their work, as ours do, so there is a wait between measuring one and the
 * other. */
#include "bench.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* C (M, N) = alpha A B + beta C, rows contiguous; 'T': the matrix is stored transposed. */
typedef int (*sgemm)(char trans_a, char trans_b, int64_t M, int64_t N, int64_t K, float alpha,
                     const float *A, int64_t lda, const float *B, int64_t ldb, float beta, float *C,
                     int64_t ldc);

struct bench_peer {
    sgemm           multiply;
    int64_t         S, M, N, K;
    const dra_real *a, *b;
    dra_real       *c;
};

static void *open_library(void)
{
    void *found = dlopen("libdnnl.so.2", RTLD_NOW); /* opening it again is cheap */
    return found ? found : dlopen("libdnnl.so.3", RTLD_NOW);
}

/* Uses memcpy, because ISO C cannot convert data pointers to function pointers. */
static bool find_symbol(const char *name, void *function)
{
    void *lib = open_library(), *at = lib ? dlsym(lib, name) : NULL;
    memcpy(function, &at, sizeof at);
    return at != NULL;
}

bench_peer *bench_peer_create(const bench_work *w, int threads)
{
    void (*set_threads)(int);
    const int64_t S = w->product[0], M = w->product[1], N = w->product[2], K = w->product[3];
    bench_peer    found = {.S = S, .M = M, .N = N, .K = K};
    if (S == 0 || sizeof(dra_real) != sizeof(float) ||
        !find_symbol("dnnl_sgemm", &found.multiply) ||
        !find_symbol("omp_set_num_threads", &set_threads))
        return NULL;
    found.a = w->tensor[0].data;
    found.b = w->tensor[1].data;
    found.c = calloc((size_t)(S * M * N), sizeof *found.c);
    bench_peer *p = found.c ? malloc(sizeof *p) : NULL;
    if (!p) {
        free(found.c);
        return NULL;
    }
    set_threads(threads);
    *p = found;
    return p;
}

void bench_peer_run(bench_peer *p)
{
    const int64_t M = p->M, N = p->N, K = p->K;
    for (int64_t i = 0; i < p->S; i++)
        p->multiply('N', 'T', M, N, K, 1, (const void *)(p->a + i * M * K), K,
                    (const void *)(p->b + i * N * K), K, 0, (void *)(p->c + i * M * N), N);
}

void bench_peer_destroy(bench_peer *p)
{
    if (p) free(p->c);
    free(p);
}
