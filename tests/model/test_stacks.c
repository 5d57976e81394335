/* Stacks of sublayers: models whose layout, norms, residuals and positions are options, each
 * through all invariants of mixers. They read vectors, and what the head would read counts. */
#include "mixers.h"

#define MODEL(options)                                                                             \
    .config = {.dim = 12}, .model = "{\"model_type\": \"dra\", \"vocab\": 5, \"dim\": 12, "        \
                                    "\"depth\": 2, \"heads\": 3, \"context\": 64, "                \
                                    "\"ff\": {\"dim\": 8}" options "}"
/* Options of ff of their own. */
#define FF(options, ff)                                                                            \
    .config = {.dim = 12}, .model = "{\"model_type\": \"dra\", \"vocab\": 5, \"dim\": 12, "        \
                                    "\"depth\": 2, \"heads\": 3, \"context\": 64, "                \
                                    "\"ff\": {\"dim\": 8, " ff "}" options "}"

/* Pieces of 6 tokens: the text has three or four, and rows begin them at different places. */
#define XL(xl, options)                                                                            \
    .config = {.dim = 12}, .no_skips = true, .segments = true,                                     \
    .model = "{\"model_type\": \"dra\", \"vocab\": 5, \"dim\": 12, \"depth\": 2, "                 \
             "\"heads\": 3, \"context\": 6, \"ff\": {\"dim\": 8}, \"xl\": {" xl "}" options "}"

static const mixer_row rows[] = {
    {"plain", MODEL("")},
    {"learned positions, embeddings of length 1",
     MODEL(", \"positions\": \"learned\", \"embed_unit\": true"), .no_skips = true},
    {"learned positions scaled, a norm after",
     MODEL(", \"positions\": \"learned\", \"position\": {\"scale\": 0.3}, \"embed_norm\": true, "
           "\"embed_norm_kind\": \"layer\"")},

    {"layer norms without bias, gains less 1",
     MODEL(", \"norm\": \"layer\", \"norm_bias\": false, \"norm_offset\": true")},
    {"norms by length, one gain", MODEL(", \"norm\": \"unit\", \"norm_gain\": \"scalar\"")},
    {"norms by length, no gain, post",
     MODEL(", \"norm\": \"unit\", \"norm_gain\": \"none\", \"block\": {\"norm\": \"post\"}")},
    {"a smaller stream, heads gated",
     MODEL(", \"block\": {\"residual_factor\": 0.7}, \"mixer\": {\"head_gate\": true, "
           "\"gate_values\": \"biased-silu\"}")},
    {"ff gated, the product scaled",
     FF("", "\"kind\": \"silu\", \"gated\": true, \"gate_scale\": true")},
    {"tanh in place of norms", MODEL(", \"norm\": \"tanh\"")},
    {"tanh in place of norms, offsets, after branches, too",
     MODEL(", \"norm\": \"tanh\", \"norm_offset\": true, \"norm_alpha\": 0.5, \"block\": "
           "{\"branch_norm\": true}")},
    {"skips of a U-Net", MODEL(", \"unet\": true")},
    {"a mixture of all streams", MODEL(", \"block\": {\"integrate\": \"softmax\"}")},
    {"a mixture of all streams by relu, values handed on, post",
     MODEL(", \"block\": {\"integrate\": \"relu\", \"norm\": \"post\"}, \"mixer\": "
           "{\"value_residual\": \"half\"}")},
    /* No gradient goes through what the layers put out the time before. */
    {"a mixture of all streams, layers run twice",
     MODEL(", \"recycle\": 2, \"block\": {\"integrate\": \"softmax\"}"), .straight = true},
    {"norms before and after", MODEL(", \"block\": {\"post_norm\": true}")},
    {"layers run three times", MODEL(", \"recycle\": 3"), .straight = true},
    {"layers run twice, in an order of their own, scores and values handed on, reinjected",
     MODEL(", \"recycle\": 2, \"order\": [0, 1, 1, 2, 3], \"reinject\": true, \"mixer\": "
           "{\"residual_scores\": true, \"value_residual\": \"half\"}"),
     .straight = true},
    {"selective attention, more rows than there are tokens",
     MODEL(", \"mixer\": {\"selective\": 200, \"rotary\": true}")},
    {"what was embedded in every sublayer, gated, post",
     MODEL(", \"reinject\": true, \"reinject_gate\": true, \"block\": {\"norm\": \"post\"}")},
    {"sandwich norm, scaled residual",
     MODEL(", \"block\": {\"branch_norm\": true, \"residual_scale\": true}")},
    {"gru residual", MODEL(", \"block\": {\"residual\": \"gru\"}")},
    {"gru residual, scaled, post",
     MODEL(", \"block\": {\"residual\": \"gru\", \"residual_scale\": true, \"norm\": \"post\"}")},
    {"dual", MODEL(", \"block\": {\"norm\": \"dual\"}")},
    {"dual, scaled", MODEL(", \"block\": {\"norm\": \"dual\", \"dual_scale\": 0.1}")},

    {"macaron", MODEL(", \"layout\": \"faf\", \"block\": {\"macaron\": true}")},
    {"sandwich order", MODEL(", \"sandwich\": 1")},
    {"tied layers", MODEL(", \"tied_layers\": true")},
    {"custom layers in another order",
     MODEL(", \"layout\": \"afa\", \"order\": [0, 1, 0, 2, 3, 5, 4, 0]")},
    {"token shift", MODEL(", \"block\": {\"shift\": 1}")},
    {"token shift by two, post", MODEL(", \"block\": {\"shift\": 2, \"norm\": \"post\"}")},
    {"token shift, a list, tied", MODEL(", \"shifts\": [1, 3], \"tied_layers\": true")},

    {"ff gated, biases, norm",
     FF("", "\"kind\": \"erf\", \"gated\": true, \"bias\": \"all\", \"act_norm\": true")},
    {"ff silu, bias in", FF("", "\"kind\": \"silu\", \"bias\": \"in\"")},
    {"ff relu2 gated, no bias", FF(", \"bias\": true", "\"kind\": \"relu2\", \"gated\": true, "
                                                       "\"bias\": \"none\"")},

    {"t5", MODEL(", \"position\": {\"distance\": \"t5\", \"buckets\": 8, \"max_distance\": 16}"),
     .no_skips = true},
    {"dynamic bias", MODEL(", \"position\": {\"distance\": \"dynamic\"}"), .no_skips = true},
    {"dynamic bias, log, window",
     MODEL(", \"position\": {\"distance\": \"dynamic\", \"log\": true, \"layers\": 1}, "
           "\"mixer\": {\"retrieval\": \"window\", \"window\": 6}"),
     .no_skips = true},
    {"alibi, two heads", MODEL(", \"position\": {\"distance\": \"alibi\", \"slopes\": 2}"),
     .no_skips = true},
    {"alibi, gru memory, learned keys",
     MODEL(", \"position\": {\"distance\": \"alibi\"}, \"mixer\": {\"memory\": \"gru\", "
           "\"mem_kv\": 2}"),
     .no_skips = true},
    {"rotary, hybrid",
     MODEL(", \"position\": {\"rotate\": \"rotary\", \"width\": 2}, \"mixer\": [{\"memory\": "
           "\"delta\"}, {\"kv_heads\": 1}]"),
     .equal = true, .no_skips = true},
    {"xPos", MODEL(", \"position\": {\"rotate\": \"xpos\", \"xpos_base\": 16}"), .no_skips = true},

    {"residual attention", MODEL(", \"mixer\": {\"residual_scores\": true}")},
    {"residual attention, talking heads, t5, learned keys",
     MODEL(", \"mixer\": {\"residual_scores\": true, \"talk_before\": true, \"mem_kv\": 2}, "
           "\"position\": {\"distance\": \"t5\", \"buckets\": 8, \"max_distance\": 16}"),
     .no_skips = true},
    {"latents, rotary keys, memory tokens",
     MODEL(
         ", \"memory_tokens\": 2, \"position\": {\"rotate\": \"rotary\", \"width\": 2}, \"mixer\": "
         "{\"latent_kv\": 5, \"latent_rope\": 1, \"latent_q\": 6}"),
     .equal = true, .no_skips = true},
    {"latents, alibi",
     MODEL(", \"position\": {\"distance\": \"alibi\"}, \"mixer\": {\"latent_kv\": 5}"),
     .no_skips = true},
    {"three streams", MODEL(", \"block\": {\"streams\": 3}")},
    {"two streams, post, memory tokens, token shift, the output capped",
     MODEL(", \"memory_tokens\": 2, \"block\": {\"streams\": 2, \"norm\": \"post\", \"shift\": 1}, "
           "\"output_softcap\": 3")},
    {"four streams, tied, residual attention, branches scaled",
     MODEL(", \"tied_layers\": true, \"mixer\": {\"residual_scores\": true}, \"block\": "
           "{\"streams\": 4, \"branch_scale\": true, \"branch_scale_start\": 0.5}")},
    {"branches scaled, sandwich norm, macaron",
     MODEL(", \"layout\": \"faf\", \"block\": {\"macaron\": true, \"branch_norm\": true, "
           "\"branch_scale\": true, \"branch_scale_start\": 0.5, \"branch_scale_offset\": true}")},
    {"forgetting, memory tokens, token shift",
     MODEL(", \"memory_tokens\": 2, \"block\": {\"shift\": 1}, \"mixer\": {\"forget\": true, "
           "\"sink\": true}")},
    {"values of the first layer, shared half",
     MODEL(", \"mixer\": {\"value_residual\": \"half\", \"kv_heads\": 1}")},
    {"values of the first layer, learned shares, tied, memory tokens",
     MODEL(", \"layout\": \"afa\", \"tied_layers\": true, \"memory_tokens\": 2, "
           "\"mixer\": {\"value_residual\": \"learned\", \"v_norm\": true}")},
    {"values of the second layer, gru and delta memories",
     MODEL(", \"layout\": \"afaa\", \"mixer\": [{}, {\"memory\": \"gru\", "
           "\"value_residual\": \"learned\"}, {\"memory\": \"delta\", "
           "\"value_residual\": \"learned\"}]"),
     .equal = true},
    {"values of the first layer, shares of channels, low rank",
     MODEL(", \"mixer\": {\"value_residual\": \"channel\", \"value_rank\": 2, \"kv_heads\": 1, "
           "\"shift\": \"lerp\"}")},
    {"as RWKV-5, tied",
     FF(", \"embed_norm\": true, \"tied_layers\": true, \"mixer\": {\"memory\": \"moment\", "
        "\"phi\": \"identity\", \"shift\": \"mix\", \"gate_values\": \"silu\", \"decay\": "
        "\"fixed\", \"decay_form\": \"exp\", \"bonus\": \"head\", \"bonus_exp\": true}",
        "\"kind\": \"mix\""),
     .equal = true},
    {"as RWKV-6",
     FF(", \"embed_norm\": true, \"mixer\": {\"memory\": \"moment\", \"phi\": \"identity\", "
        "\"shift\": \"data\", \"shift_rank\": 2, \"gate_values\": \"silu\", \"decay\": \"data\", "
        "\"decay_form\": \"exp\", \"decay_rank\": 3, \"gamma\": {\"per\": \"channel\"}, "
        "\"bonus\": \"channel\", \"head_norm_eps\": 64e-5}",
        "\"kind\": \"mix\", \"lerp\": true"),
     .equal = true},
    {"as RWKV-7, memory tokens",
     FF(", \"memory_tokens\": 2, \"mixer\": {\"memory\": \"delta\", \"transition\": "
        "\"diagonal\", \"shift\": \"lerp\", \"rate_rank\": 2, \"decay\": \"data\", "
        "\"decay_form\": \"bounded\", \"decay_rank\": 2, \"gamma\": {\"per\": \"channel\"}, "
        "\"bonus\": \"channel\", \"head_norm\": true, \"gate_values\": \"low-rank\", "
        "\"gate_rank\": 3, \"value_residual\": \"channel\", \"value_rank\": 2}",
        "\"kind\": \"mix\", \"lerp\": true, \"receptance\": false"),
     .equal = true},
    {"sinks, talking heads, memory tokens",
     MODEL(", \"memory_tokens\": 2, \"mixer\": {\"sink\": true, \"talk_after\": true}")},
    {"capped late: alibi, learned keys; the output capped",
     MODEL(", \"position\": {\"distance\": \"alibi\"}, \"output_softcap\": 3, \"mixer\": "
           "{\"mem_kv\": 2, \"softcap\": 1.5, \"softcap_late\": true}"),
     .no_skips = true},
    {"capped late: residual attention, t5, post",
     MODEL(", \"position\": {\"distance\": \"t5\", \"buckets\": 8, \"max_distance\": 16}, "
           "\"mixer\": {\"residual_scores\": true, \"softcap\": 1.5, \"softcap_late\": true}, "
           "\"block\": {\"norm\": \"post\"}, \"output_softcap\": 3"),
     .no_skips = true},
    {"prefixes", MODEL(", \"visible\": \"prefix\""), .prefix = true},
    {"prefixes, memory tokens, rotary, learned keys, residual attention",
     MODEL(", \"visible\": \"prefix\", \"memory_tokens\": 2, \"position\": {\"rotate\": "
           "\"rotary\"}, \"mixer\": {\"mem_kv\": 2, \"residual_scores\": true}"),
     .prefix = true, .no_skips = true},
    {"prefixes, t5, grouped heads, token shift, streams",
     MODEL(", \"visible\": \"prefix\", \"position\": {\"distance\": \"t5\", \"buckets\": 8, "
           "\"max_distance\": 16}, \"mixer\": {\"kv_heads\": 1}, \"block\": {\"shift\": 1, "
           "\"streams\": 2}"),
     .prefix = true, .no_skips = true},
    {"prefixes, alibi, latents",
     MODEL(", \"visible\": \"prefix\", \"position\": {\"distance\": \"alibi\"}, \"mixer\": "
           "{\"latent_kv\": 5}"),
     .prefix = true, .no_skips = true,
     .equal = true}, /* latents: few queries are computed otherwise */
    {"memory tokens", MODEL(", \"memory_tokens\": 2")},
    {"memory tokens, token shift, alibi",
     MODEL(", \"memory_tokens\": 3, \"block\": {\"shift\": 1}, \"position\": {\"distance\": "
           "\"alibi\"}"),
     .no_skips = true},
    {"memory tokens, learned positions, residual attention, dual",
     MODEL(", \"memory_tokens\": 2, \"positions\": \"learned\", \"block\": {\"norm\": \"dual\"}, "
           "\"mixer\": {\"residual_scores\": true}"),
     .no_skips = true},
    {"memory tokens, delta memory, rotary in the other layer",
     MODEL(", \"memory_tokens\": 2, \"position\": {\"rotate\": \"rotary\"}, \"mixer\": "
           "[{\"memory\": \"delta\"}, {\"key_dim\": 4}]"),
     .equal = true, .no_skips = true},
    {"xl, one segment", MODEL(", \"xl\": {\"memory\": 5}"), .no_skips = true},
    {"xl", XL("\"memory\": 4", "")},
    {"xl, memory of several segments, down, t5",
     XL("\"memory\": 15, \"down\": 1",
        ", \"position\": {\"distance\": \"t5\", \"buckets\": 8, \"max_distance\": 16}")},
    {"xl, learned positions, post, down",
     XL("\"memory\": 6, \"down\": 1",
        ", \"positions\": \"learned\", \"block\": {\"norm\": \"post\"}")},
    {"xl, rotary, grouped heads, biases, qk norm",
     XL("\"memory\": 7", ", \"position\": {\"rotate\": \"rotary\"}, \"bias\": true, \"mixer\": "
                         "{\"kv_heads\": 1, \"qk_norm\": true, \"v_norm\": true}")},
    {"xl, xPos, token shift, learned keys",
     XL("\"memory\": 3", ", \"position\": {\"rotate\": \"xpos\", \"xpos_base\": 16}, \"block\": "
                         "{\"shift\": 2}, \"mixer\": {\"mem_kv\": 2}")},
    {"xl, alibi, residual attention, macaron, tied layers",
     XL("\"memory\": 8, \"down\": 1",
        ", \"position\": {\"distance\": \"alibi\"}, \"mixer\": {\"residual_scores\": true}, "
        "\"layout\": \"faf\", \"tied_layers\": true")},
    {"xl, dynamic bias, another order, down by two",
     XL("\"memory\": 9, \"down\": 2", ", \"position\": {\"distance\": \"dynamic\"}, \"layout\": "
                                      "\"afa\", \"order\": [0, 1, 0, 2, 3, 5]")},
    {"modern: grouped heads, rotary, qk norm, swiglu, top 4",
     FF(", \"position\": {\"rotate\": \"rotary\"}, \"mixer\": {\"kv_heads\": 1, \"key_dim\": 4, "
        "\"qk_norm\": true, \"qkv_norm\": \"unit\", \"qkv_gain\": \"heads\", \"score_scale\": 10, "
        "\"topk\": 4}",
        "\"kind\": \"silu\", \"gated\": true"),
     .no_skips = true},
};

int main(void) { return mixers_main("stacks", rows, COUNT(rows)); }
