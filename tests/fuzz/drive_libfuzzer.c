/* The driver for libFuzzer, which searches by coverage: clang's -fsanitize=fuzzer has main(). */
#include "mutate.h"

uint64_t fuzz_seed;
uint32_t fuzz_drawn;

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
int    LLVMFuzzerInitialize(int *argc, char ***argv);
int    LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);

_Noreturn void broken(const char *what)
{
    fprintf(stderr, "BROKEN: %s\n", what);
    abort(); /* libFuzzer keeps the input */
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    if (fuzz_this.begin) fuzz_this.begin();
    if (fuzz_this.end) atexit(fuzz_this.end);
    return 0;
}

/* What a harness draws follows from the size alone: drawn from all bytes, it would make inputs look
 * new that are not. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_draw_from(size);
    harness(data, size);
    return 0;
}

/* Most mutations are libFuzzer's; some know the words of the format, a few begin with a good one.
 */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    static fuzz_bytes b;
    fuzz_draw_from(seed);
    const uint32_t kind = below(64);
    if (kind > 15) size = LLVMFuzzerMutate(data, size, most);
    if (size > FUZZ_MOST || (kind > 15 && !fuzz_this.repair)) return size;
    b.n = 0;
    if (kind == 0 && fuzz_this.make)
        fuzz_this.make(&b);
    else
        put(&b, data, size);
    if (kind > 0 && kind <= 15) mutate(&b, &fuzz_this);
    if (kind > 15 && below(2)) fuzz_this.repair(&b);
    if (b.n > most) b.n = most;
    memcpy(data, b.at, b.n);
    return b.n;
}
