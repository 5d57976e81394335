/* The functions of a communicator: on threads that meet at a board, against plain loops. */
#include <math.h>

#include "check.h"
#include "comm/board.h"

enum { PART = 37 }; /* reals */

static void expect_all(const board *b)
{
    for (int r = 0; r < b->n; r++)
        if (b->seat[r].status != DRA_OK) fail_msg("rank %d: %s", r, b->seat[r].error.text);
}

/* ---- the tree -------------------------------------------------------------------------------- */

static void expect_cover(int64_t leaves, int size)
{
    int64_t next = 0;
    for (int r = 0; r < size; r++) {
        dra_leaves       node[DRA_TREE_COVER];
        const dra_leaves own = dra_tree_share(leaves, r, size);
        const int        n = dra_tree_cover(leaves, own, node);
        assert_int_equal(own.first, next);
        assert_in_range(own.n, 1, (leaves + size - 1) / size);
        for (int k = 0; k < n; k++) {
            assert_int_equal(node[k].first, next);
            next += node[k].n;
        }
        assert_int_equal(next, own.first + own.n);
    }
    assert_int_equal(next, leaves);
}

static void ranks_cover_the_tree(void **state)
{
    dra_leaves node[DRA_TREE_COVER];
    for (int64_t leaves = 1; leaves < 40; leaves++)
        for (int size = 1; size <= leaves; size++) expect_cover(leaves, size);
    expect_cover(1 << 20, 777);
    assert_int_equal(dra_tree_cover(8, (dra_leaves){0, 8}, node), 1);
    assert_int_equal(dra_tree_cover(8, (dra_leaves){2, 3}, node), 2);
    assert_int_equal(dra_tree_left((dra_leaves){0, 7}).n, 4);
    assert_int_equal(dra_tree_right((dra_leaves){4, 3}).n, 1);
}

/* ---- numbers of the host --------------------------------------------------------------------- */

static void share_numbers(board_seat *s)
{
    dra_comm *c = &s->comm;
    const int n = dra_comm_size(c), me = dra_comm_rank(c);
    int64_t   all[BOARD_RANKS] = {0}, one = me == n - 1 ? 7 : 0, passed = me == 0 ? 5 : 0;
    all[me] = 10 + me;
    s->status = dra_comm_share(c, all, sizeof *all, &s->error);
    for (int r = 0; r < n && s->status == DRA_OK; r++)
        if (all[r] != 10 + r) s->status = dra_fail(&s->error, DRA_ERR_VALUE, "share");
    if (s->status == DRA_OK) s->status = dra_comm_spread(c, n - 1, &one, sizeof one, &s->error);
    if (s->status == DRA_OK && one != 7) s->status = dra_fail(&s->error, DRA_ERR_VALUE, "spread");
    if (s->status == DRA_OK)
        s->status = dra_comm_pass(c, 0, n - 1, &passed, sizeof passed, &s->error);
    if (s->status == DRA_OK && me == n - 1 && passed != 5)
        s->status = dra_fail(&s->error, DRA_ERR_VALUE, "pass");
}

static void numbers_are_shared(void **state)
{
    for (int n = 2; n <= BOARD_RANKS; n++) {
        board b = board_of(n);
        b.delay = 300;
        board_run(&b, share_numbers, NULL);
        expect_all(&b);
    }
}

static void agree_on_two(board_seat *s)
{
    dra_status st = s->rank < 2 ? DRA_OK
                                : dra_fail(&s->error, DRA_ERR_FILE, "disk %d is full", s->rank);
    s->status = dra_comm_agree(&s->comm, st, &s->error);
}

static void agree_on_all(board_seat *s)
{
    const dra_status st = dra_fail(&s->error, DRA_ERR_FILE, "no such file");
    s->status = dra_comm_agree(&s->comm, st, &s->error);
}

static void agree_on_none(board_seat *s) { s->status = dra_comm_agree(&s->comm, DRA_OK, NULL); }

static void the_first_that_failed_is_named(void **state)
{
    board b = board_of(4);
    board_run(&b, agree_on_none, NULL);
    expect_all(&b);
    board_run(&b, agree_on_two, NULL);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(b.seat[r].status, DRA_ERR_FILE);
        assert_string_equal(b.seat[r].error.text, "rank 2: disk 2 is full");
        assert_false(dra_comm_broken(&b.seat[r].comm));
    }
    board_run(&b, agree_on_all, NULL);
    assert_string_equal(b.seat[3].error.text, "no such file");
}

static void check_version(board_seat *s) { s->status = dra_comm_check(&s->comm, &s->error); }

static void alone_there_is_nobody_to_ask(void **state)
{
    dra_error err = {0};
    assert_int_equal(dra_comm_rank(NULL), 0);
    assert_int_equal(dra_comm_size(NULL), 1);
    assert_false(dra_comm_broken(NULL));
    assert_int_equal(dra_comm_agree(NULL, DRA_OK, &err), DRA_OK);
    assert_int_equal(dra_comm_agree(NULL, DRA_ERR_FILE, &err), DRA_ERR_FILE);
    dra_comm_destroy(NULL);
    board b = board_of(3);
    board_run(&b, check_version, NULL);
    expect_all(&b);
}

/* ---- arrays ---------------------------------------------------------------------------------- */

typedef struct sums { /* what a test of sums is made of */
    int64_t  leaves;
    dra_real (*leaf)[PART]; /* what each adds */
    dra_real expected[PART];
} sums;

/* The definition: left child plus right child. */
static void add_leaves(const sums *x, dra_leaves node, dra_real *to)
{
    dra_real right[PART];
    if (node.n == 1) {
        memcpy(to, x->leaf[node.first], sizeof right);
        return;
    }
    add_leaves(x, dra_tree_left(node), to);
    add_leaves(x, dra_tree_right(node), right);
    for (int i = 0; i < PART; i++) to[i] += right[i];
}

static dra_status put_numbers(dra_device *d, const void *x, size_t bytes, dra_array **out,
                              dra_error *err)
{
    const dra_status st = dra_array_create(d, bytes, out, err);
    return st == DRA_OK ? dra_array_upload(dra_array_whole(*out), x, err) : st;
}

static dra_status expect_numbers(dra_span s, const dra_real *x, const char *what, dra_error *err)
{
    dra_real   found[PART * BOARD_RANKS];
    dra_status st = dra_array_download(found, s, err);
    if (st == DRA_OK && memcmp(found, x, s.bytes) != 0)
        st = dra_fail(err, DRA_ERR_VALUE, "%s: other numbers", what);
    return st;
}

static void sum_up(board_seat *s)
{
    const sums      *x = s->user;
    dra_comm        *c = &s->comm;
    const int        n = dra_comm_size(c), me = dra_comm_rank(c);
    const dra_leaves own = dra_tree_share(x->leaves, me, n);
    dra_leaves       cover[DRA_TREE_COVER];
    dra_span         node[DRA_TREE_COVER];
    dra_device      *d = NULL;
    dra_adder       *adder = NULL;
    dra_array       *array[DRA_TREE_COVER + 2] = {0};
    size_t           offset[BOARD_RANKS + 1];
    int              k = dra_tree_cover(x->leaves, own, cover);
    for (int r = 0; r <= n; r++) offset[r] = (size_t)(PART * r / n) * sizeof(dra_real);
    s->status = check_cpu(&(dra_cpu_config){.threads = 1}, &d, &s->error);
    if (s->status == DRA_OK) s->status = dra_adder_create(d, &adder, &s->error);
    for (int i = 0; i < k && s->status == DRA_OK; i++) {
        dra_real sum[PART];
        add_leaves(x, cover[i], sum);
        s->status = put_numbers(d, sum, sizeof sum, &array[i], &s->error);
        node[i] = dra_array_whole(array[i]);
    }
    const size_t room = dra_comm_reduce_room(c, x->leaves, offset);
    if (s->status == DRA_OK) s->status = dra_array_create(d, room, &array[k], &s->error);
    if (s->status == DRA_OK)
        s->status = dra_array_create(d, sizeof x->expected, &array[k + 1], &s->error);
    const dra_span all = dra_array_whole(array[k + 1]);
    if (s->status == DRA_OK)
        s->status = dra_comm_reduce_scatter(
            c, x->leaves, node, offset,
            dra_span_part(all, offset[me], offset[me + 1] - offset[me]),
            dra_array_whole(array[k]), adder, &s->error);
    if (s->status == DRA_OK) s->status = dra_comm_all_gather(c, all, offset, &s->error);
    if (s->status == DRA_OK) s->status = expect_numbers(all, x->expected, "sum", &s->error);
    for (int i = 0; i < k + 2; i++) dra_array_destroy(array[i]);
    dra_adder_destroy(adder);
    dra_device_destroy(d);
}

/* Numbers of many sizes, whose sum in another order has other bits. */
static void sums_have_the_order_of_the_tree(void **state)
{
    dra_real leaf[13][PART];
    for (int k = 0; k < 13; k++)
        for (int i = 0; i < PART; i++)
            leaf[k][i] = (dra_real)(sin(k * 37 + i) * pow(10, (k * 7 + i) % 9 - 4));
    for (int64_t leaves = 2; leaves <= 13; leaves++) {
        sums x = {.leaves = leaves, .leaf = leaf};
        add_leaves(&x, (dra_leaves){0, leaves}, x.expected);
        for (int n = 2; n <= leaves && n <= BOARD_RANKS; n += leaves > 6 ? 3 : 1) {
            board b = board_of(n);
            b.delay = n % 2 ? 200 : 0;
            board_run(&b, sum_up, &x);
            expect_all(&b);
        }
    }
}

/* Every rank sends PART numbers to every rank, and one to the next. */
static void move_arrays(board_seat *s)
{
    dra_comm    *c = &s->comm;
    const int    n = dra_comm_size(c), me = dra_comm_rank(c);
    const size_t each = PART * sizeof(dra_real), one = sizeof(dra_real);
    dra_real     out[BOARD_RANKS * PART], in[BOARD_RANKS * PART];
    dra_device  *d = NULL;
    dra_array   *a = NULL, *b = NULL;
    dra_span     to[BOARD_RANKS], from[BOARD_RANKS];
    for (int r = 0; r < n; r++)
        for (int i = 0; i < PART; i++) {
            out[r * PART + i] = (dra_real)(1000 * me + 100 * r + i);
            in[r * PART + i] = (dra_real)(1000 * r + 100 * me + i);
        }
    s->status = check_cpu(&(dra_cpu_config){.threads = 1}, &d, &s->error);
    if (s->status == DRA_OK) s->status = put_numbers(d, out, (size_t)n * each, &a, &s->error);
    if (s->status == DRA_OK) s->status = dra_array_create(d, (size_t)n * each, &b, &s->error);
    for (int r = 0; r < n; r++) {
        to[r] = dra_span_part(dra_array_whole(b), (size_t)r * each, each);
        from[r] = dra_span_part(dra_array_whole(a), (size_t)r * each, each);
    }
    if (s->status == DRA_OK) s->status = dra_comm_all_to_all(c, to, from, &s->error);
    if (s->status == DRA_OK)
        s->status = expect_numbers(dra_array_whole(b), in, "all to all", &s->error);
    const int after = (me + 1) % n, before = (me + n - 1) % n;
    if (s->status == DRA_OK)
        s->status = dra_comm_exchange(c, after, dra_span_part(from[me], 0, one), before,
                                      dra_span_part(to[0], 0, one), &s->error);
    in[0] = (dra_real)(1100 * before);
    if (s->status == DRA_OK)
        s->status = expect_numbers(dra_span_part(to[0], 0, one), in, "exchange", &s->error);
    dra_array_destroy(a);
    dra_array_destroy(b);
    dra_device_destroy(d);
}

static void arrays_are_moved(void **state)
{
    for (int n = 2; n <= BOARD_RANKS; n += 3) {
        board b = board_of(n);
        board_run(&b, move_arrays, NULL);
        expect_all(&b);
    }
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

static void go_on(board_seat *s)
{
    int64_t x[BOARD_RANKS];
    s->status = DRA_OK;
    for (int k = 0; k < 5 && s->status == DRA_OK; k++)
        s->status = dra_comm_share(&s->comm, x, sizeof *x, &s->error);
    if (s->status != DRA_OK) /* and is not asked again */
        s->status = dra_comm_agree(&s->comm, s->status, &s->error);
}

static void others_hear_of_an_end(void **state)
{
    board b = board_of(3);
    b.ends = 1, b.at = 2;
    board_run(&b, go_on, NULL);
    for (int r = 0; r < 3; r++) assert_true(dra_comm_broken(&b.seat[r].comm));
    assert_string_equal(b.seat[0].error.text, "rank 1 has ended");
    assert_string_equal(b.seat[2].error.text, "rank 1 has ended");
}

static void missing_libraries_are_named(void **state)
{
    dra_error err = {0};
    dra_comm *c = NULL;
    char      text[80];
    assert_int_equal(dra_comm_open("nothing", &c, &err), DRA_ERR_DEVICE);
    assert_null(c);
    assert_non_null(strstr(err.text, "ranks 'nothing': no libdra-nothing.so in DRA_PLUGIN_PATH"));
    assert_int_equal(dra_comm_describe("nothing", text, sizeof text, &err), DRA_ERR_DEVICE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_cover_the_tree),
        cmocka_unit_test(numbers_are_shared),
        cmocka_unit_test(the_first_that_failed_is_named),
        cmocka_unit_test(alone_there_is_nobody_to_ask),
        cmocka_unit_test(sums_have_the_order_of_the_tree),
        cmocka_unit_test(arrays_are_moved),
        cmocka_unit_test(others_hear_of_an_end),
        cmocka_unit_test(missing_libraries_are_named),
    };
    return check_main("comm", NULL, 0, tests, COUNT(tests));
}
