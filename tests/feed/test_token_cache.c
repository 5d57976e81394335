/* Cached tokens: used again, made again when damaged or when the text has changed. */
#include "corpora.h"

#include <sys/wait.h>

static dra_tokenizer *pairs;
static const char    *text = "the one\n--\nand the other th\n"; /* two documents */

static int make_all(void **state)
{
    if (folder_make(state) != 0) return -1;
    pairs = pairs_tokenizer(300);
    return 0;
}

static int remove_all(void **state)
{
    dra_tokenizer_destroy(pairs);
    return folder_remove(state);
}

static dra_corpus *opened_kept(const char *name)
{
    const char *path = in_folder(name);
    return opened((dra_corpus_config){
        .n = 1, .paths = &path, .tokenizer = pairs, .separator = "--", .cache = folder});
}

static void check_kept(const char *name) /* the corpus of `text` */
{
    dra_corpus *c = opened_kept(name);
    check_ids(c, (int32_t[]){257, ' ', 'o', 'n', 'e', '\n', 300, 'a', 'n',  'd',
                             ' ', 257, ' ', 'o', 257, 'r',  ' ', 256, '\n', 300},
              20);
    check_starts(c, (int64_t[]){0, 7}, 2);
    assert_int_equal(dra_corpus_bytes(c), strlen(text) - 3);
    dra_corpus_close(c);
}

/* The one kept file, by its name in the folder; how many there are. */
static int kept_files(char name[300])
{
    DIR           *d = opendir(folder);
    struct dirent *e;
    int            n = 0;
    assert_non_null(d);
    while ((e = readdir(d)))
        if (strstr(e->d_name, ".tokens")) snprintf(name, 300, "%s", e->d_name), n++;
    closedir(d);
    return n;
}

static ino_t kept_number(const char *name)
{
    struct stat s;
    assert_int_equal(stat(in_folder(name), &s), 0);
    return s.st_ino;
}

static void uses_kept_tokens(void **state)
{
    char name[300];
    put_text("t.txt", text);
    check_kept("t.txt");
    assert_int_equal(kept_files(name), 1);
    assert_int_equal(folder_files(false), 2); /* and no temporary */
    const ino_t number = kept_number(name);
    check_kept("t.txt");
    assert_int_equal(kept_number(name), number);
    assert_int_equal(kept_files(name), 1);
}

static void makes_new_ones_for_another_text(void **state)
{
    char              name[300];
    const char       *path = put_text("t.txt", text);
    dra_corpus_config config = {
        .n = 1, .paths = &path, .tokenizer = pairs, .separator = "--", .cache = folder};
    check_kept("t.txt");
    put_text("t.txt", "the end"); /* other bytes at another time */
    dra_corpus *c = opened_kept("t.txt");
    check_ids(c, (int32_t[]){257, ' ', 'e', 'n', 'd', 300}, 6);
    dra_corpus_close(c);
    assert_int_equal(kept_files(name), 2);
    config.no_end = true;
    dra_corpus_close(opened(config));
    assert_int_equal(kept_files(name), 3);
    config.separator = NULL;
    dra_corpus_close(opened(config));
    assert_int_equal(kept_files(name), 4);
    dra_tokenizer *other = pairs_tokenizer(301);
    config.tokenizer = other;
    path = in_folder("t.txt");
    dra_corpus_close(opened(config));
    assert_int_equal(kept_files(name), 5);
    dra_tokenizer_destroy(other);
}

static size_t kept_bytes(const char *name, char room[1024])
{
    FILE *f = fopen(in_folder(name), "rb");
    assert_non_null(f);
    const size_t n = fread(room, 1, 1024, f);
    fclose(f);
    return n;
}

/* Every byte changed, every length cut, one byte more: the tokens are made again, the same. */
static void mends_damage(void **state)
{
    char name[300], whole[1024], bad[1025], now[1024];
    put_text("t.txt", text);
    check_kept("t.txt");
    assert_int_equal(kept_files(name), 1);
    const size_t n = kept_bytes(name, whole);
    assert_in_range(n, 100, 1000);
    for (size_t i = 0; i < 2 * n + 1; i++) {
        memcpy(bad, whole, n);
        bad[n] = 0;
        if (i < n) bad[i] = (char)(bad[i] ^ (1 << i % 8));
        put_file(name, bad, i < n ? n : i == 2 * n ? n + 1 : i - n);
        check_kept("t.txt");
        assert_int_equal(kept_bytes(name, now), n);
        assert_memory_equal(now, whole, n);
    }
    assert_int_equal(folder_files(false), 2);
}

/* In a process of its own; its status is 0 when all went well. */
static pid_t open_elsewhere(const dra_corpus_config *config)
{
    const pid_t child = fork();
    dra_corpus *c = NULL;
    if (child != 0) return child;
    _exit(dra_corpus_open(config, NULL, NULL, &c, NULL) != DRA_OK || dra_corpus_tokens(c) != 20);
}

static void lets_several_make_it_at_once(void **state)
{
    enum { N = 4 };
    pid_t child[N];
    char  name[300];
    int   status;
    for (int round = 0; round < 5; round++) {
        clean(state);
        const char             *path = put_text("t.txt", text);
        const dra_corpus_config config = {
            .n = 1, .paths = &path, .tokenizer = pairs, .separator = "--", .cache = folder};
        for (int i = 0; i < N; i++) assert_true((child[i] = open_elsewhere(&config)) > 0);
        for (int i = 0; i < N; i++) {
            assert_int_equal(waitpid(child[i], &status, 0), child[i]);
            assert_int_equal(status, 0);
        }
        assert_int_equal(kept_files(name), 1);
        assert_int_equal(folder_files(false), 2);
        check_kept("t.txt");
    }
}

static void makes_the_folder(void **state)
{
    const char *path = put_text("t.txt", text), *cache = in_folder("cache");
    char        inside[320];
    dra_corpus_close(
        opened((dra_corpus_config){.n = 1, .paths = &path, .tokenizer = pairs, .cache = cache}));
    snprintf(inside, sizeof inside, "%s", folder);
    snprintf(folder, sizeof folder, "%.200s/cache", inside); /* to clean it up */
    assert_int_equal(folder_files(true), 1);
    snprintf(folder, sizeof folder, "%.250s", inside);
    check_no_corpus(
        (dra_corpus_config){
            .n = 1, .paths = &path, .tokenizer = pairs, .cache = in_folder("no/where")},
        DRA_ERR_FILE, "no/where", ": cannot make it as a cache: No such file or directory");
}

/* Nothing is left of tokens that are not kept, and nothing of what was refused. */
static void leaves_nothing_behind(void **state)
{
    const char *path = put_text("t.txt", text);
    assert_int_equal(setenv("TMPDIR", folder, 1), 0);
    dra_corpus *c = opened((dra_corpus_config){.n = 1, .paths = &path, .tokenizer = pairs});
    assert_int_equal(folder_files(false), 1);
    dra_corpus_close(c);
    path = put_text("t.jsonl", "{\"text\": \"a\"}\n{\n");
    check_no_corpus(
        (dra_corpus_config){.n = 1, .paths = &path, .tokenizer = pairs, .cache = folder},
        DRA_ERR_FORMAT, "t.jsonl", ":2: JSON, column 0: string or '}' expected near end of file");
    assert_int_equal(folder_files(false), 2);
    path = in_folder("t.txt");
    assert_int_equal(setenv("TMPDIR", in_folder("none"), 1), 0);
    check_no_corpus((dra_corpus_config){.n = 1, .paths = &path, .tokenizer = pairs}, DRA_ERR_FILE,
                    "t.txt",
                    ": cannot make a temporary file for its tokens: No such file or directory");
    unsetenv("TMPDIR");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(uses_kept_tokens, clean),
        cmocka_unit_test_setup(makes_new_ones_for_another_text, clean),
        cmocka_unit_test_setup(mends_damage, clean),
        cmocka_unit_test_setup(lets_several_make_it_at_once, clean),
        cmocka_unit_test_setup(makes_the_folder, clean),
        cmocka_unit_test_setup(leaves_nothing_behind, clean),
    };
    return cmocka_run_group_tests_name("token_cache", tests, make_all, remove_all);
}
