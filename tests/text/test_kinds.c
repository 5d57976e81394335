/* Tokenizers of model families: ids, texts in pieces, decoding, files, tokens around a text. */
#include "file/folder.h"
#include "kinds.h"

static void gives_the_ids_of_the_files(void **state)
{
    for (size_t i = 0; i < COUNT(kinds); i++) {
        dra_tokenizer *t = open_kind(kinds[i]);
        check_kind(t, kinds[i]);
        dra_tokenizer_destroy(t);
    }
}

static void saves_what_opens_as_the_same(void **state)
{
    const char *path = in_folder("saved.json");
    for (size_t i = 0; i < COUNT(kinds); i++) {
        dra_tokenizer *t = open_kind(kinds[i]);
        assert_int_equal(dra_tokenizer_save(t, path, NULL), DRA_OK);
        dra_tokenizer *again = open_tokenizer(path);
        assert_true(dra_tokenizer_fingerprint(t) == dra_tokenizer_fingerprint(again));
        check_kind(again, kinds[i]);
        dra_tokenizer_destroy(again);
        dra_tokenizer_destroy(t);
    }
}

/* Every kind gives other ids to this than the others with its vocabulary would. */
static void tells_kinds_apart(void **state)
{
    uint64_t seen[COUNT(kinds)];
    for (size_t i = 0; i < COUNT(kinds); i++) {
        dra_tokenizer *t = open_kind(kinds[i]);
        seen[i] = dra_tokenizer_fingerprint(t);
        for (size_t k = 0; k < i; k++) assert_true(seen[k] != seen[i]);
        dra_tokenizer_destroy(t);
    }
}

/* ---- in pieces ------------------------------------------------------------------------------- */

/* As a file is read, some bytes more at a time. */
static dra_ids in_parts(const dra_tokenizer *t, const kind_case *c, size_t step)
{
    dra_ids ids = {0};
    size_t  done = 0;
    for (size_t here = step; here < c->bytes; here += step) {
        char *arrived = malloc(here - done);
        assert_non_null(arrived);
        memcpy(arrived, c->text + done, here - done);
        const size_t cut = dra_encode_cut(t, arrived, here - done);
        if (cut)
            assert_int_equal(dra_encode_as(t, arrived, cut,
                                           done ? DRA_ENCODE_REST : DRA_ENCODE_BEGIN, &ids, NULL),
                             DRA_OK);
        free(arrived);
        done += cut;
    }
    const unsigned how = (done ? DRA_ENCODE_REST : DRA_ENCODE_BEGIN) | DRA_ENCODE_END;
    assert_int_equal(dra_encode_as(t, c->text + done, c->bytes - done, how, &ids, NULL), DRA_OK);
    return ids;
}

static void keeps_the_ids_in_parts(void **state)
{
    for (size_t i = 0; i < COUNT(kinds); i++) {
        dra_tokenizer *t = open_kind(kinds[i]);
        json_t        *cases = open_cases(kinds[i]);
        kind_case      c;
        for (size_t k = 0; read_case(cases, k, &c); k++) {
            for (size_t step = 1; step < 12; step += 5) {
                dra_ids ids = in_parts(t, &c, step);
                check_same(&ids, &c.ids, c.text);
                dra_ids_free(&ids);
            }
            dra_ids_free(&c.ids);
        }
        json_decref(cases);
        dra_tokenizer_destroy(t);
    }
}

/* Long texts are cut somewhere, so a file takes the memory of a part. */
static void cuts_text_of_every_kind(void **state)
{
    static const char text[] = "One word, another one; and 12 more words follow";
    for (size_t i = 0; i < COUNT(kinds); i++) {
        dra_tokenizer *t = open_kind(kinds[i]);
        assert_in_range(dra_encode_cut(t, text, sizeof text - 1), 30, sizeof text - 1);
        dra_tokenizer_destroy(t);
    }
}

/* ---- decoding -------------------------------------------------------------------------------- */

static void add_text(char *out, size_t *n, size_t room, const char *text, size_t bytes)
{
    assert_true(*n + bytes < room);
    memcpy(out + *n, text, bytes);
    out[ *n += bytes] = 0;
}

/* By letters, or as bytes; either gives the text that the file has. */
static void check_back(const dra_tokenizer *t, const kind_case *c, bool raw)
{
    enum { ROOM = 4096 };
    char         found[ROOM] = "";
    size_t       n = 0, bytes;
    const char  *text;
    dra_decoder *d = NULL;
    assert_int_equal(dra_decoder_create(t, true, &d, NULL), DRA_OK);
    dra_decoder_start(d);
    for (size_t i = 0; i < c->ids.n; i++) {
        assert_int_equal(
            (raw ? dra_decoder_bytes : dra_decoder_push)(d, c->ids.data[i], &text, &bytes, NULL),
            DRA_OK);
        add_text(found, &n, ROOM, text, bytes);
    }
    dra_decoder_flush(d, &text, &bytes);
    add_text(found, &n, ROOM, text, bytes);
    assert_string_equal(found, c->back);
    dra_decoder_destroy(d);
}

static void gives_the_text_back(void **state)
{
    for (size_t i = 0; i < COUNT(kinds); i++) {
        dra_tokenizer *t = open_kind(kinds[i]);
        json_t        *cases = open_cases(kinds[i]);
        kind_case      c;
        for (size_t k = 0; read_case(cases, k, &c); k++) {
            check_back(t, &c, false);
            check_back(t, &c, true);
            dra_ids_free(&c.ids);
        }
        json_decref(cases);
        dra_tokenizer_destroy(t);
    }
}

/* A decoder that is new continues a text: the first space is one. */
static void keeps_spaces_inside_of_a_text(void **state)
{
    dra_tokenizer *t = open_kind("prepend");
    dra_decoder   *d = NULL;
    const char    *text;
    size_t         bytes;
    const int32_t  id = dra_tokenizer_id(t, " the");
    assert_true(id >= 0);
    assert_int_equal(dra_decoder_create(t, false, &d, NULL), DRA_OK);
    assert_int_equal(dra_decoder_push(d, id, &text, &bytes, NULL), DRA_OK);
    assert_string_equal(text, " the");
    dra_decoder_start(d);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(dra_decoder_push(d, id, &text, &bytes, NULL), DRA_OK);
        assert_string_equal(text, i ? " the" : "the");
    }
    dra_decoder_destroy(d);
    dra_tokenizer_destroy(t);
}

/* Three bytes of a character that has no token: nothing comes out before the last. */
static void holds_back_bytes_of_a_character(void **state)
{
    static const char text[] = "\xe2\x88\xae"; /* a contour integral */
    dra_tokenizer    *t = open_kind("replace");
    dra_decoder      *d = NULL;
    dra_ids           ids = encode_bytes(t, text, sizeof text - 1);
    const char       *out;
    size_t            bytes;
    assert_int_equal(ids.n, 3);
    assert_int_equal(dra_decoder_create(t, false, &d, NULL), DRA_OK);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(dra_decoder_push(d, ids.data[i], &out, &bytes, NULL), DRA_OK);
        assert_string_equal(out, i < 2 ? "" : text);
    }
    dra_ids_free(&ids);
    dra_decoder_destroy(d);
    dra_tokenizer_destroy(t);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static void keeps_bytes_that_are_no_text(void **state)
{
    static const char *const some[] = {"llama3", "qwen35", "digits", "replace"};
    uint64_t                 seed = 3;
    for (size_t i = 0; i < COUNT(some); i++) {
        dra_tokenizer *t = open_kind(some[i]);
        for (int k = 0; k < 500; k++) {
            char         text[48];
            const size_t n = (size_t)(check_random(&seed) * 48);
            for (size_t j = 0; j < n; j++) {
                text[j] = (char)(check_random(&seed) * 256);
                if ((unsigned char)text[j] >= 0xc3 && (unsigned char)text[j] < 0xf5)
                    text[j] = (char)0xff; /* NFC and U+2581 change letters */
            }
            dra_ids ids = encode_bytes(t, text, n);
            check_bytes(t, &ids, text, n);
            dra_ids_free(&ids);
        }
        dra_tokenizer_destroy(t);
    }
}

static void names_a_character_without_a_token(void **state)
{
    dra_tokenizer    *t = NULL;
    dra_ids           ids = {0};
    dra_error         err = {0};
    static const char file[] =
        "{\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": "
        "\"\xe2\x96\x81\"}, \"pre_tokenizer\": null, \"decoder\": {\"type\": \"Replace\", "
        "\"pattern\": {\"String\": \"\xe2\x96\x81\"}, \"content\": \" \"}, \"model\": {\"type\": "
        "\"BPE\", \"vocab\": {\"a\": 0, \"\xe2\x96\x81\": 1}, \"merges\": []}}";
    if (dra_tokenizer_read_json("f", file, sizeof file - 1, &t, &err) != DRA_OK)
        fail_msg("%s", err.text);
    check_ids(t, "a \xe2\x96\x81", "0 1 1");
    assert_int_equal(dra_encode(t, "ab", 2, &ids, &err), DRA_ERR_VALUE);
    assert_non_null(strstr(err.text, "0x62"));
    dra_ids_free(&ids);
    dra_tokenizer_destroy(t);
}

/* ---- tokens around a text -------------------------------------------------------------------- */

static void check_start(const dra_tokenizer *t, const char *text, unsigned how, size_t begins)
{
    dra_ids ids = encode_as(t, text, strlen(text), how);
    size_t  n = 0;
    while (n < ids.n && ids.data[n] == dra_tokenizer_begin(t)) n++;
    if (n != begins) fail_msg("'%s' begins %zu times, expected %zu", text, n, begins);
    dra_ids_free(&ids);
}

static void begins_a_text_once(void **state)
{
    static const struct {
        const char *kind, *bos;
    } rows[] = {{"llama3", "<|begin_of_text|>"}, {"prepend", "<s>"}, {"metaspace-first", "<s>"}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        dra_tokenizer *t = open_kind(rows[i].kind);
        char           text[64];
        assert_int_equal(dra_tokenizer_begin(t), dra_tokenizer_id(t, rows[i].bos));
        snprintf(text, sizeof text, "%shi", rows[i].bos);
        check_start(t, "hi", 0, 0);
        check_start(t, "hi", DRA_ENCODE_BEGIN, 1);
        check_start(t, "", DRA_ENCODE_BEGIN, 1);
        check_start(t, text, 0, 1); /* a chat template writes it */
        check_start(t, text, DRA_ENCODE_BEGIN, 1);
        check_start(t, text, DRA_ENCODE_BEGIN | DRA_ENCODE_PLAIN, 1);
        check_start(t, rows[i].bos, DRA_ENCODE_BEGIN, 1);
        dra_tokenizer_destroy(t);
    }
    dra_tokenizer *none = open_kind("qwen2");
    assert_int_equal(dra_tokenizer_begin(none), -1);
    check_ids(none, "", "");
    dra_tokenizer_destroy(none);
}

static void knows_the_end_of_a_text(void **state)
{
    static const char *const rows[][2] = {{"llama3", "<|endoftext|>"}, {"prepend", "</s>"}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        dra_tokenizer *t = open_kind(rows[i][0]);
        assert_true(dra_tokenizer_end(t) >= 0);
        assert_int_equal(dra_tokenizer_end(t), dra_tokenizer_id(t, rows[i][1]));
        dra_tokenizer_destroy(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_ids_of_the_files),
        cmocka_unit_test(saves_what_opens_as_the_same),
        cmocka_unit_test(tells_kinds_apart),
        cmocka_unit_test(keeps_the_ids_in_parts),
        cmocka_unit_test(cuts_text_of_every_kind),
        cmocka_unit_test(gives_the_text_back),
        cmocka_unit_test(keeps_spaces_inside_of_a_text),
        cmocka_unit_test(holds_back_bytes_of_a_character),
        cmocka_unit_test(keeps_bytes_that_are_no_text),
        cmocka_unit_test(names_a_character_without_a_token),
        cmocka_unit_test(begins_a_text_once),
        cmocka_unit_test(knows_the_end_of_a_text),
    };
    if (folder_make(NULL) != 0) return 1;
    const int status = check_main("kinds", NULL, 0, tests, COUNT(tests));
    return folder_remove(NULL) != 0 ? 1 : status;
}
