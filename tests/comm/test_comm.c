/* The functions of a communicator: on threads that meet at a board, against plain loops. */
#include "comm/board.h"
#include "comm/functions.h"

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

static void try_numbers(board_seat *s)
{
    s->status = share_numbers(&s->comm, &s->error);
    if (s->status == DRA_OK) s->status = agree_on_one(&s->comm, &s->error);
}

static void numbers_are_shared(void **state)
{
    for (int n = 2; n <= BOARD_RANKS; n++) {
        board b = board_of(n);
        b.delay = 300;
        board_run(&b, try_numbers, NULL);
        expect_all(&b);
    }
}

static void fail_all(board_seat *s)
{
    const dra_status st = dra_fail(&s->error, DRA_ERR_FILE, "no such file");
    s->status = dra_comm_agree(&s->comm, st, &s->error);
}

static void rank_0_needs_no_name(void **state)
{
    board b = board_of(4);
    board_run(&b, fail_all, NULL);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(b.seat[r].status, DRA_ERR_FILE);
        assert_string_equal(b.seat[r].error.text, "no such file");
    }
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

static void try_sum(board_seat *s)
{
    s->status = sum_leaves(&s->comm, *(const int64_t *)s->user, &s->error);
}

static void sums_have_the_order_of_the_tree(void **state)
{
    for (int64_t leaves = 2; leaves <= LEAVES_MOST; leaves++)
        for (int n = 2; n <= leaves && n <= BOARD_RANKS; n += leaves > 6 ? 3 : 1) {
            board b = board_of(n);
            b.delay = n % 2 ? 200 : 0;
            board_run(&b, try_sum, &leaves);
            expect_all(&b);
        }
}

static void try_arrays(board_seat *s) { s->status = move_arrays(&s->comm, &s->error); }

static void arrays_are_moved(void **state)
{
    for (int n = 2; n <= BOARD_RANKS; n += 3) {
        board b = board_of(n);
        board_run(&b, try_arrays, NULL);
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
        cmocka_unit_test(rank_0_needs_no_name),
        cmocka_unit_test(alone_there_is_nobody_to_ask),
        cmocka_unit_test(sums_have_the_order_of_the_tree),
        cmocka_unit_test(arrays_are_moved),
        cmocka_unit_test(others_hear_of_an_end),
        cmocka_unit_test(missing_libraries_are_named),
    };
    return check_main("comm", NULL, 0, tests, COUNT(tests));
}
