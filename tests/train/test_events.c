/* Event files, read back by a reader of their own: records, sums, messages; those of runs. */
#include <dirent.h>
#include <math.h>

#include "generate/fixture.h"

/* ---- a reader -------------------------------------------------------------------------------- */

typedef struct bytes {
    const uint8_t *at, *end;
} bytes;

static uint64_t little(bytes *b, int n)
{
    uint64_t x = 0;
    assert_true(b->end - b->at >= n);
    for (int i = 0; i < n; i++) x |= (uint64_t)*b->at++ << 8 * i;
    return x;
}

static uint64_t varint(bytes *b)
{
    uint64_t x = 0;
    for (int shift = 0;; shift += 7) {
        const uint64_t byte = little(b, 1);
        assert_true(shift < 64);
        x |= (byte & 127) << shift;
        if (byte < 128) return x;
    }
}

/* The next field of a message: its number; 0: there is none. Bytes go to *inside. */
static int field(bytes *b, uint64_t *x, bytes *inside)
{
    if (b->at == b->end) return 0;
    const uint64_t key = varint(b);
    switch (key & 7) {
    case 0: *x = varint(b); break;
    case 1: *x = little(b, 8); break;
    case 5: *x = little(b, 4); break;
    case 2: {
        const uint64_t n = varint(b);
        assert_true(n <= (uint64_t)(b->end - b->at));
        *inside = (bytes){b->at, b->at + n};
        b->at += n;
        break;
    }
    default: fail_msg("wire type %d", (int)(key & 7));
    }
    return (int)(key >> 3);
}

/* CRC-32C by long division: the register shifts towards its low end. */
static uint32_t sum_of(const uint8_t *p, size_t n)
{
    uint32_t c = ~0u;
    for (size_t i = 0; i < 8 * n; i++) {
        const uint32_t bit = (c ^ (uint32_t)(p[i / 8] >> i % 8)) & 1;
        c = bit ? c >> 1 ^ 0x82f63b78 : c >> 1;
    }
    c = ~c;
    return (c >> 15 | c << 17) + 0xa282ead8;
}

static bytes record(bytes *file)
{
    const uint8_t *head = file->at;
    const uint64_t n = little(file, 8);
    assert_int_equal(little(file, 4), sum_of(head, 8));
    assert_true(n <= (uint64_t)(file->end - file->at));
    const bytes data = {file->at, file->at + n};
    file->at += n;
    assert_int_equal(little(file, 4), sum_of(data.at, n));
    return data;
}

typedef struct event {
    double  time;
    int64_t step;
    int     session; /* its status */
    char    version[32];
    int     n;
    char    tag[16][32];
    float   value[16];
} event;

static void read_value(bytes b, event *e)
{
    uint64_t x;
    bytes    text;
    for (int f; (f = field(&b, &x, &text));) {
        const uint32_t bits = (uint32_t)x;
        if (f == 1)
            snprintf(e->tag[e->n], 32, "%.*s", (int)(text.end - text.at), (const char *)text.at);
        if (f == 2) memcpy(&e->value[e->n], &bits, sizeof bits);
    }
    e->n++;
}

static event read_event(bytes *file)
{
    bytes    b = record(file), inside, part;
    event    e = {0};
    uint64_t x;
    for (int f; (f = field(&b, &x, &inside));) {
        if (f == 1) memcpy(&e.time, &x, sizeof x);
        if (f == 2) e.step = (int64_t)x;
        if (f == 3)
            snprintf(e.version, 32, "%.*s", (int)(inside.end - inside.at), (const char *)inside.at);
        if (f == 5)
            while (field(&inside, &x, &part) == 1) read_value(part, &e);
        if (f == 7 && field(&inside, &x, &part) == 1) e.session = (int)x;
    }
    return e;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* The i-th event file of a folder by name; returns how many there are. */
static int find_file(const char *folder, int i, char name[300])
{
    struct dirent **all = NULL;
    int             found = 0;
    const int       n = scandir(folder, &all, NULL, alphasort);
    for (int k = 0; k < n; k++) {
        if (strncmp(all[k]->d_name, "events.out.tfevents.", 20) == 0 && found++ == i)
            snprintf(name, 300, "%s", all[k]->d_name);
        free(all[k]);
    }
    free(all);
    return found;
}

static bytes open_file(const char *folder, int i, char **data)
{
    char name[300];
    assert_true(find_file(folder, i, name) > i);
    const size_t n = read_file(folder, name, data);
    return (bytes){(const uint8_t *)*data, (const uint8_t *)*data + n};
}

static void expect_start(bytes *file, int64_t step)
{
    const event first = read_event(file), second = read_event(file);
    assert_string_equal(first.version, "brain.Event:2");
    assert_true(first.time > 1.7e9);
    assert_int_equal(second.session, 1);
    assert_int_equal(second.step, step);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void sums_by_the_book(void **state)
{
    static const uint8_t zeros[32]; /* RFC 3720, B.4 */
    assert_int_equal(dra_crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(dra_crc32c(zeros, 32), 0x8a9136aa);
    assert_int_equal(dra_crc32c("", 0), 0);
}

static void scalars_come_back(void **state)
{
    const dra_scalar  some[] = {{"loss", 2.5}, {"lr", 3e-4}, {"grad_norm", NAN}};
    const dra_scalar  one = {"eval/loss", -1e30};
    const int64_t     late = (int64_t)1 << 40;
    const char *const folder = in_scratch("scalars");
    dra_events       *e = NULL;
    dra_error         err = {0};
    char             *data = NULL;
    shell("mkdir '%s%s'", folder, "");
    expect_ok(dra_events_create(folder, 0, &e, &err), &err);
    expect_ok(dra_events_write(e, 300, COUNT(some), some, &err), &err);
    expect_ok(dra_events_write(e, late, 1, &one, &err), &err);
    expect_ok(dra_events_write(e, late, 0, NULL, &err), &err);
    dra_events_close(e);
    bytes file = open_file(folder, 0, &data);
    expect_start(&file, 1);
    const event a = read_event(&file), b = read_event(&file), c = read_event(&file);
    assert_true(file.at == file.end);
    assert_int_equal(a.step, 300);
    assert_int_equal(a.n, 3);
    assert_string_equal(a.tag[1], "lr");
    assert_true(a.value[0] == 2.5f && a.value[1] == 3e-4f && isnan(a.value[2]));
    assert_true(b.step == late && b.n == 1 && b.value[0] == -1e30f);
    assert_string_equal(b.tag[0], "eval/loss");
    assert_int_equal(c.n, 0);
    free(data);
}

static void refuses_what_cannot_be(void **state)
{
    static char       tag[1 << 15];
    const char *const folder = in_scratch("refused");
    dra_events       *e = NULL;
    dra_error         err = {0};
    assert_int_equal(dra_events_create(in_scratch("nowhere"), 0, &e, &err), DRA_ERR_FILE);
    assert_null(e);
    shell("mkdir '%s%s'", folder, "");
    expect_ok(dra_events_create(folder, 0, &e, &err), &err);
    memset(tag, 'x', sizeof tag - 1);
    assert_int_equal(dra_events_write(e, 1, 1, &(dra_scalar){tag, 1}, &err), DRA_ERR_VALUE);
    if (!strstr(err.text, "a record of more than")) fail_msg("%s", err.text);
    expect_ok(dra_events_write(e, 2, 1, &(dra_scalar){"loss", 1}, &err), &err);
    dra_events_close(e);
    dra_events_close(NULL);
    char *data = NULL;
    bytes file = open_file(folder, 0, &data);
    expect_start(&file, 1);
    assert_int_equal(read_event(&file).step, 2); /* nothing of the one that was refused */
    assert_true(file.at == file.end);
    free(data);
}

/* A run with events, until a step. */
static void run_with_events(const fixture *f, const char *folder, const dra_train_config *train,
                            int64_t stop)
{
    watcher            w = {.stop = stop};
    dra_trainer       *t = NULL;
    dra_error          err = {0};
    dra_trainer_config c = trainer_config(f, folder, train);
    c.resume = true;
    c.tensorboard = true;
    expect_ok(dra_trainer_create(&c, &t, &err), &err);
    expect_ok(dra_trainer_run(t, watch, &w, &err), &err);
    expect_ok(dra_trainer_note(t, "sample", "some text", &err), &err); /* no scalar */
    dra_trainer_destroy(t);
}

/* Every number of the log is in the events; a resumed run says so in a file of its own. */
static void runs_write_what_they_log(void **state)
{
    const dra_train_config train = {
        .steps = 6, .batch = 2, .log_every = 1, .eval_every = 3, .save_every = 3, .split = 0.2};
    const char *const folder = in_scratch("run");
    fixture           f = {0};
    char             *data = NULL, name[300];
    open_fixture(&f, "dra-gru-tiny", NULL, put_text("text", "a line of text, and one more\n", 60));
    run_with_events(&f, folder, &train, 3);
    run_with_events(&f, folder, &train, 0);
    assert_int_equal(find_file(folder, 0, name), 2);
    for (int i = 0; i < 2; i++) {
        bytes file = open_file(folder, i, &data);
        expect_start(&file, 3 * i + 1);
        for (int64_t step = 3 * i + 1; step <= 3 * i + 3; step++) {
            const event e = read_event(&file);
            assert_int_equal(e.step, step);
            assert_true(e.n >= 7); /* loss, lr, grad_norm, tokens, ... */
            assert_string_equal(e.tag[0], "train/loss");
            assert_string_equal(e.tag[1], "train/learning_rate");
            assert_string_equal(e.tag[2], "train/grad_norm");
            assert_true(e.value[0] > 1 && e.value[0] < 10);
        }
        const event e = read_event(&file);
        assert_string_equal(e.tag[e.n - 2], "eval/loss");
        assert_string_equal(e.tag[e.n - 1], "eval/best_loss");
        assert_true(file.at == file.end);
        free(data);
    }
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_by_the_book),
        cmocka_unit_test(scalars_come_back),
        cmocka_unit_test(refuses_what_cannot_be),
        cmocka_unit_test(runs_write_what_they_log),
    };
    return cmocka_run_group_tests_name("events", tests, scratch_make, scratch_remove);
}
