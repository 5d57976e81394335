/* Life of named states: in memory and on the disk, forked, deleted, kept apart by keys, within
 * quotas. With the engine of fake_engine.c, whose states have 100 bytes. */
#include "started.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MANY = 20 };

static char word[160], folder[160];

static int open_model(void **state)
{
    tiny = server_model("dra-ema-tiny");
    snprintf(word, sizeof word, "tiny=%s", tiny);
    snprintf(folder, sizeof folder, "%s/states", tiny);
    return 0;
}

/* Half of 1 KiB is for states with names: five of them. */
static void run_small(const char *const *more)
{
    const char *words[24] = {"--model", word, "--port", "0", "--memory-limit", "1K"};
    size_t      n = 6;
    while (more && *more) words[n++] = *more++;
    it = server_start(words);
    assert_int_not_equal(it.port, 0);
}

static void run_with_folder(void) { run_small((const char *const[]){"--state-dir", folder, NULL}); }

static int status_of(answer a)
{
    const int status = a.status;
    answer_free(&a);
    return status;
}

/* Tokens of a state; -1: there is none. */
static int tokens_of(const char *name)
{
    char path[100], body[100];
    snprintf(path, sizeof path, "/states/%s-more", name);
    snprintf(body, sizeof body, "{\"prompt\": \"x\", \"dra_state\": \"%s\"}", name);
    answer    a = post(path, body);
    const int tokens = a.status == 201 ? (int)answer_number(&a, "tokens") - 1 : -1;
    answer_free(&a);
    if (tokens >= 0) {
        a = client_ask(it.port, "DELETE", path, NULL);
        assert_int_equal(a.status, 200);
        answer_free(&a);
    }
    return tokens;
}

static void make_many(void)
{
    for (int i = 0; i < MANY; i++) {
        char path[64], body[64];
        snprintf(path, sizeof path, "/states/s%02d", i);
        snprintf(body, sizeof body, "{\"prompt\": \"%.*s\"}", i + 1, "abcdefghijklmnopqrstuvwxyz");
        assert_int_equal(status_of(post(path, body)), 201);
    }
}

static int count_names(int *in_memory)
{
    answer  a = get("/states");
    json_t *list = answer_at(&a, "data"), *x;
    size_t  i;
    int     n = 0;
    *in_memory = 0;
    json_array_foreach(list, i, x)
    {
        n++;
        *in_memory += json_is_true(json_object_get(x, "in_memory"));
    }
    answer_free(&a);
    return n;
}

static int count_files(void)
{
    char           path[200];
    int            n = 0;
    struct dirent *x;
    snprintf(path, sizeof path, "%s/tiny", folder);
    DIR *d = opendir(path);
    while (d && (x = readdir(d))) n += strstr(x->d_name, ".state") != NULL;
    if (d) closedir(d);
    return n;
}

static void expect_all(void)
{
    int in_memory;
    assert_int_equal(count_names(&in_memory), MANY);
    assert_true(in_memory <= 5);
    for (int i = 0; i < MANY; i += 3) {
        char name[16];
        snprintf(name, sizeof name, "s%02d", i);
        assert_int_equal(tokens_of(name), i + 1);
    }
}

/* More than memory holds: all stay on the disk, also when the server starts again. */
static void what_leaves_memory_stays(void **state)
{
    run_with_folder();
    make_many();
    expect_all();
    assert_int_equal(status_of(post("/v1/completions", "{\"prompt\": \"a\"}")), 200);
    ends_well(state);
    run_with_folder();
    expect_all();
    answer a = get("/states/s07"); /* of the disk, as it is */
    assert_string_equal(a.body, "fake 8\n");
    answer_free(&a);
    ends_well(state);
}

/* A fork has the file of what it is a fork of; each goes on by itself. */
static void forks_share_a_file(void **state)
{
    char        path[200];
    struct stat one, other;
    run_with_folder();
    assert_int_equal(status_of(post("/states/s03/fork", "{\"to\": \"twig\"}")), 201);
    snprintf(path, sizeof path, "%s/tiny/s03.state", folder);
    assert_int_equal(stat(path, &one), 0);
    snprintf(path, sizeof path, "%s/tiny/twig.state", folder);
    assert_int_equal(stat(path, &other), 0);
    assert_int_equal(one.st_ino, other.st_ino);
    ends_well(state);
    run_with_folder();
    assert_int_equal(status_of(post("/states/s03", "{\"prompt\": \"new\"}")), 201);
    assert_int_equal(tokens_of("twig"), 4);
    assert_int_equal(tokens_of("s03"), 3);
    assert_int_equal(status_of(client_ask(it.port, "DELETE", "/states/twig", NULL)), 200);
    assert_int_equal(status_of(post("/states/s03", "{\"prompt\": \"abcd\"}")), 201);
    ends_well(state);
}

/* Saves and deletes of one name at a time: in the end the disk has what the server has. */
static void deleted_is_deleted(void **state)
{
    static const char save[] =
        "POST /states/flip HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        "Content-Length: 17\r\n\r\n{\"prompt\": \"abc\"}";
    static const char gone[] = "DELETE /states/flip HTTP/1.1\r\nHost: localhost\r\n"
                               "Connection: close\r\n\r\n";
    int               in_memory;
    run_with_folder();
    const int before = count_files();
    for (int round = 0; round < 100; round++) {
        int fds[4];
        for (int i = 0; i < 4; i++) {
            const bool deletes = (round >> i) % 2;
            fds[i] = client_open(it.port);
            client_send(fds[i], deletes ? gone : save, (deletes ? sizeof gone : sizeof save) - 1);
        }
        for (int i = 0; i < 4; i++) {
            answer a = client_read(fds[i]);
            assert_true(a.status == 200 || a.status == 201 || a.status == 404);
            answer_free(&a);
        }
        const int names = count_names(&in_memory), files = count_files();
        if (names != files) fail_msg("round %d: %d names, %d files", round, names, files);
    }
    const int last = status_of(client_ask(it.port, "DELETE", "/states/flip", NULL));
    assert_true(last == 200 || last == 404);
    assert_int_equal(count_files(), before);
    ends_well(state);
}

/* Without a directory the oldest ones go, and nobody is refused. */
static void memory_alone_forgets_the_oldest(void **state)
{
    int in_memory;
    run_small(NULL);
    make_many();
    assert_int_equal(count_names(&in_memory), 5);
    assert_int_equal(tokens_of("s19"), 20);
    assert_int_equal(tokens_of("s00"), -1);
    assert_int_equal(status_of(post("/v1/completions", "{\"prompt\": \"a\"}")), 200);
    ends_well(state);
}

static void quotas_hold(void **state)
{
    static const struct {
        const char *option, *most;
        int         names; /* that are taken */
    } all[] = {{"--max-states", "3", 3}, {"--state-quota", "250", 3}, {"--state-disk", "150", 2}};
    for (size_t i = 0; i < COUNT(all); i++) {
        char own[200];
        snprintf(own, sizeof own, "%s/own%zu", tiny, i);
        run_small((const char *const[]){"--state-dir", own, all[i].option, all[i].most, NULL});
        for (int k = 0; k < 4; k++) {
            char path[64];
            snprintf(path, sizeof path, "/states/q%d", k);
            const int status = status_of(post(path, "{\"prompt\": \"abc\"}"));
            if (status != (k < all[i].names ? 201 : 507))
                fail_msg("%s, name %d: %d", all[i].option, k, status);
        }
        assert_int_equal(
            status_of(post("/v1/completions", "{\"prompt\": \"a\", \"dra_save_state\": \"q9\"}")),
            507);
        assert_int_equal(status_of(post("/v1/completions", "{\"prompt\": \"a\"}")), 200);
        ends_well(state);
    }
}

/* Forks have what they were forked from: a quota counts it once. */
static void forks_cost_no_quota(void **state)
{
    char own[200];
    snprintf(own, sizeof own, "%s/forks", tiny);
    run_small((const char *const[]){"--state-dir", own, "--state-quota", "250", NULL});
    assert_int_equal(status_of(post("/states/a", "{\"prompt\": \"abc\"}")), 201);
    for (int k = 0; k < 5; k++) {
        char body[40];
        snprintf(body, sizeof body, "{\"to\": \"f%d\"}", k);
        assert_int_equal(status_of(post("/states/a/fork", body)), 201);
    }
    assert_int_equal(status_of(post("/states/b", "{\"prompt\": \"abc\"}")), 201);
    assert_int_equal(status_of(post("/states/c", "{\"prompt\": \"abc\"}")), 201);
    assert_int_equal(status_of(post("/states/d", "{\"prompt\": \"abc\"}")), 507);
    ends_well(state);
}

static int *synced; /* folders; shared with the server, which is a process of its own */

/* In place of the library's. */
int fsync(int fd)
{
    struct stat how;
    if (synced && fstat(fd, &how) == 0 && S_ISDIR(how.st_mode)) __atomic_add_fetch(synced, 1, 5);
    return (int)syscall(SYS_fsync, fd);
}

/* Names that come and go are on the disk before the answer says so. */
static void links_are_synced(void **state)
{
    char own[200];
    snprintf(own, sizeof own, "%s/synced", tiny);
    synced = mmap(NULL, sizeof *synced, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(synced != MAP_FAILED);
    run_small((const char *const[]){"--state-dir", own, NULL});
    assert_int_equal(status_of(post("/states/a", "{\"prompt\": \"abc\"}")), 201);
    int before = *synced;
    assert_int_equal(status_of(post("/states/a/fork", "{\"to\": \"b\"}")), 201);
    assert_true(*synced > before);
    before = *synced;
    assert_int_equal(status_of(client_ask(it.port, "DELETE", "/states/b", NULL)), 200);
    assert_true(*synced > before);
    ends_well(state);
    munmap(synced, sizeof *synced);
    synced = NULL;
}

static void old_ones_go(void **state)
{
    char                  path[200];
    const struct timespec past[2] = {{1000000, 0}, {1000000, 0}};
    int                   in_memory;
    snprintf(path, sizeof path, "%s/tiny/s05.state", folder);
    assert_int_equal(utimensat(AT_FDCWD, path, past, 0), 0);
    run_small((const char *const[]){"--state-dir", folder, "--state-days", "30", NULL});
    assert_int_equal(count_names(&in_memory), MANY - 1);
    assert_int_equal(tokens_of("s05"), -1);
    for (int i = 0; i < 100 && access(path, F_OK) == 0; i++) nap(20);
    assert_int_not_equal(access(path, F_OK), 0);
    ends_well(state);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static answer ask_as(const char *key, const char *method, const char *path, const char *body)
{
    char headers[100];
    snprintf(headers, sizeof headers, "Authorization: Bearer %s\r\n", key);
    return client_ask_with(it.port, method, path, headers, body, body ? strlen(body) : 0);
}

static void keys_are_apart(void **state)
{
    static const char text[] = "one Ann\ntwo\nthree Ann\nlook Eve [read-only]\nboss Bob [admin]\n";
    char              path[200], own[200];
    snprintf(path, sizeof path, "%s/keys", tiny);
    snprintf(own, sizeof own, "%s/apart", tiny);
    assert_int_equal(dra_file_write(path, text, sizeof text - 1, NULL), DRA_OK);
    const char *const more[] = {"--state-dir", own, "--api-key-file", path, NULL};
    run_small(more);
    assert_int_equal(status_of(ask_as("one", "POST", "/states/a", "{\"prompt\": \"abc\"}")), 201);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(status_of(ask_as("two", "GET", "/states/a", NULL)), 404);
        assert_int_equal(status_of(ask_as("two", "DELETE", "/states/a", NULL)), 404);
        assert_int_equal(status_of(ask_as("two", "POST", "/v1/completions",
                                          "{\"prompt\": \"a\", \"dra_state\": \"a\"}")),
                         404);
        answer a = ask_as("two", "GET", "/states", NULL);
        assert_int_equal(json_array_size(answer_at(&a, "data")), 0);
        answer_free(&a);
        assert_int_equal(status_of(ask_as("two", "POST", "/states/a", "{\"prompt\": \"x\"}")), 201);
        a = ask_as("three", "GET", "/states/a", NULL); /* another key of the same name */
        assert_string_equal(a.body, "fake 3\n");
        answer_free(&a);
        assert_int_equal(status_of(ask_as("two", "DELETE", "/states/a", NULL)), 200);
        ends_well(state);
        run_small(more);
    }
    assert_int_equal(status_of(ask_as("look", "POST", "/states/a", "{\"prompt\": \"x\"}")), 403);
    assert_int_equal(status_of(ask_as("look", "PUT", "/states/a", "fake 1\n")), 403);
    assert_int_equal(status_of(ask_as("look", "DELETE", "/states/a", NULL)), 403);
    assert_int_equal(status_of(ask_as("look", "POST", "/v1/completions",
                                      "{\"prompt\": \"a\", \"dra_save_state\": \"a\"}")),
                     403);
    assert_int_equal(status_of(ask_as("look", "POST", "/v1/completions", "{\"prompt\": \"a\"}")),
                     200);
    assert_int_equal(status_of(ask_as("one", "GET", "/metrics", NULL)), 403);
    assert_int_equal(status_of(ask_as("boss", "GET", "/metrics", NULL)), 200);
    ends_well(state);
}

/* Two models have the name: the body says which is meant, as the path may. */
static void bodies_name_the_model(void **state)
{
    char other[160];
    snprintf(other, sizeof other, "other=%s", tiny);
    it = server_start(
        (const char *const[]){"--model", word, "--model", other, "--port", "0", NULL});
    for (int i = 0; i < 2; i++) {
        char body[100];
        for (int k = 0; k < 2; k++) {
            snprintf(body, sizeof body, "{\"prompt\": \"x\", \"model\": \"%s\"}",
                     k ? "other" : "tiny");
            assert_int_equal(status_of(post("/states/a", body)), 201);
        }
    }
    assert_int_equal(status_of(post("/states/a", "{\"prompt\": \"x\"}")), 400);
    assert_int_equal(status_of(post("/states/a?model=tiny", "{\"prompt\": \"x\"}")), 201);
    assert_int_equal(status_of(post("/states/%2e%2e", "{\"prompt\": \"x\"}")), 400);
    ends_well(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_leaves_memory_stays, open_model),
        cmocka_unit_test(forks_share_a_file),
        cmocka_unit_test(deleted_is_deleted),
        cmocka_unit_test(memory_alone_forgets_the_oldest),
        cmocka_unit_test(quotas_hold),
        cmocka_unit_test(forks_cost_no_quota),
        cmocka_unit_test(links_are_synced),
        cmocka_unit_test(old_ones_go),
        cmocka_unit_test(keys_are_apart),
        cmocka_unit_test(bodies_name_the_model),
    };
    return check_main("states", NULL, 0, tests, COUNT(tests));
}
