/* Speculation: drafts are read with the token before them, all at once, and kept as far as they
 * are what the model itself would have written.
 *
 * A sequence with drafts is read in a copy of its row. Its picks are made as ever, one after
 * another, each by the logits after the tokens before it: with the same numbers and by the same
 * rules, so the text is the one without drafts. If all drafts were right the copy becomes the row.
 * If not, the copy goes, and the tokens that were picked stay unread: they are read again with the
 * next drafts, which costs a few more rows of a product whose weights are read anyway. So no
 * memory has to be able to go back, and the row is always one that a step by step would have made.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "generate/engine.h"

static int64_t unread_of(const dra_sequence *s) { return (int64_t)(s->ids.n - s->read); }

static int64_t length_of(const dra_sequence *s)
{
    return unread_of(s) + dra_drafts_count(s->drafts);
}

int64_t dra_verify_length(int64_t n, dra_sequence *const *of)
{
    int64_t most = 1;
    for (int64_t b = 0; b < n; b++) most = dra_imax(most, length_of(of[b]));
    return most;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Token t of those that a sequence reads. */
static int32_t token_at(const dra_sequence *s, int64_t t)
{
    const int64_t unread = unread_of(s);
    return t < unread ? s->ids.data[s->read + (size_t)t] : dra_drafts_at(s->drafts, t - unread);
}

static dra_status read_all(dra_engine *e, int64_t n, dra_sequence *const *of, int64_t B, int64_t T,
                           dra_error *err)
{
    dra_lane   *l = &e->lane[0];
    dra_reader *r;
    for (int64_t b = 0; b < B; b++) {
        const dra_sequence *s = b < n ? of[b] : NULL;
        const int64_t       length = s ? length_of(s) : 0;
        e->rows[b] = !s ? -1 : s->copy >= 0 ? s->copy : s->row;
        for (int64_t t = 0; t < T; t++) {
            e->ids[b * T + t] = t < length ? token_at(s, t) : 0;
            e->mark[b * T + t] = t < length ? 0 : DRA_MARK_PAD;
        }
    }
    const dra_named in = {"ids", e->ids, (size_t)(B * T) * sizeof *e->ids};
    dra_status      st = dra_engine_reader(e, 0, DRA_VIEW_VERIFY, &r, err);
    if (st == DRA_OK) st = dra_reader_read_rows(r, l->pool, B, e->rows, T, e->mark, 1, &in, err);
    return st == DRA_OK ? dra_reader_finish(r, err) : st;
}

/* ---- picking --------------------------------------------------------------------------------- */

static void see_token(dra_sequence *s, int32_t id)
{
    if (s->seen) s->seen[id] = true;
}

static bool goes_on(const dra_sequence *s) { return !s->job->over && !s->job->closing; }

/* What was read is noted: in the row itself, or ahead of it. */
static dra_status take_read(dra_engine *e, dra_sequence *s, int64_t first, dra_error *err)
{
    const int64_t unread = unread_of(s);
    for (int64_t t = 0; t < unread; t++) see_token(s, s->ids.data[s->read + (size_t)t]);
    s->view = DRA_VIEW_VERIFY;
    s->at = first + unread - 1;
    *(s->copy < 0 ? &s->read : &s->ahead) += s->fresh = (size_t)unread;
    return dra_job_note_read(e, s->job, err);
}

/* The tokens that follow, as far as the drafts are right; *right: how many are. */
static dra_status pick_all(dra_engine *e, dra_sequence *s, int64_t *right, dra_error *err)
{
    const int64_t drafts = dra_drafts_count(s->drafts);
    dra_status    st = DRA_OK;
    for (int64_t k = 0; st == DRA_OK && goes_on(s); k++) {
        const size_t before = s->ids.n;
        st = dra_pick(e, 1, &s, err);
        const bool same = st == DRA_OK && goes_on(s) && k < drafts && s->ids.n == before + 1 &&
                          s->ids.data[before] == dra_drafts_at(s->drafts, k);
        if (!same) break;
        see_token(s, s->ids.data[before]);
        s->at++;
        s->ahead++;
        ++*right;
    }
    return st;
}

/* The row becomes what was read, or stays what it was. */
static void settle_row(dra_engine *e, dra_sequence *s, int64_t unread, int64_t right)
{
    const int64_t drafts = dra_drafts_count(s->drafts);
    s->ahead = 0;
    if (s->copy >= 0 && right == drafts && !s->job->over) {
        dra_rows_give(e, &s->row);
        s->row = s->copy;
        s->copy = -1;
        s->read += (size_t)(unread + right);
    }
    dra_rows_give(e, &s->copy);
    if (drafts > 0) dra_drafts_judge(s->drafts, right);
}

/* Whether somebody may go back to where the row is: its logits are there now, and only now. */
static bool keeps_logits(const dra_sequence *s)
{
    const dra_job *job = s->job;
    return s->copy >= 0 && unread_of(s) == 1 &&
           (job->config.n_stop > 0 || job->config.save || job->inside.keep);
}

dra_status dra_verify(dra_engine *e, int64_t n, dra_sequence *const *of, int64_t *written,
                      dra_error *err)
{
    int64_t       B = 1, T = 1, right;
    const int64_t most = dra_verify_length(n, of);
    dra_status    st = DRA_OK;
    while (B < n) B *= 2;
    while (T < most) T *= 2;
    for (int64_t b = 0; b < n && st == DRA_OK; b++)
        if (keeps_logits(of[b])) st = dra_sequence_own_logits(e, of[b], err);
    if (st == DRA_OK) st = read_all(e, n, of, B, T, err);
    for (int64_t b = 0; b < n; b++) {
        dra_sequence *s = of[b];
        const int64_t unread = unread_of(s), drafts = dra_drafts_count(s->drafts);
        const size_t  before = s->ids.n;
        dra_error     why = {0};
        right = 0;
        dra_status own = st == DRA_OK ? take_read(e, s, b * T, &why) : st;
        if (own == DRA_OK) own = pick_all(e, s, &right, &why);
        if (st == DRA_OK && own != DRA_OK) dra_job_fail(e, s->job, &why);
        if (st == DRA_OK) settle_row(e, s, unread, right);
        *written += (int64_t)(s->ids.n - before);
        s->job->drafted += drafts;
        s->job->accepted += right;
    }
    return st;
}
