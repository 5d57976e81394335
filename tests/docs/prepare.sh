# shellcheck shell=sh
# What pages take for granted, made in the current folder by `dra`: texts, models, runs, a
# tokenizer, rows of probes. Names are those that pages use.
set -e
small="--set dim=48 --set depth=2 --set heads=2"
quick="--steps 2 --batch 2 --context 32"

i=0
while [ "$i" -lt 60 ]; do
    echo "Line $i of a story that goes on and on, with numbers: $((i * i))."
    i=$((i + 1))
done >book.txt
cp book.txt my.txt
gzip -c book.txt >book.txt.gz
head -n 20 book.txt >other.txt
mkdir texts
cp book.txt other.txt texts
sed 's/.*/{"text": "&"}/' book.txt >lines.jsonl
head -n 3 book.txt | sed 's/.*/{"prompt": "&"}/' >prompts.jsonl
cat >questions.jsonl <<'END'
{"context": "Roses are", "choices": [" red", " a kind of fish"], "answer": 0}
{"context": "Line 2 of a", "choices": [" story", " fish", " thing"], "answer": 0}
END
{ # 40 rows of 30 bytes as an array of NumPy
    printf '\223NUMPY\001\000\166\000'
    printf '%-117s\n' "{'descr': '|u1', 'fortran_order': False, 'shape': (40, 30), }"
    head -c 1200 book.txt
} >ids.npy

# shellcheck disable=SC2086 # lists of options
{
    dra init --preset dra-gru-tiny $small --out model
    dra init --preset dra-ema-tiny $small --out weaker
    dra init --preset gpt2-tiny $small --out gpt
    dra init --preset rwkv4-tiny $small --out rwkv
    dra convert --from gpt --to gpt2-folder --as hf
    dra init --preset xt-decoder-tiny --out xt-folder
    dra convert --from rwkv --to rwkv.bin --as rwkv.cpp
    dra train --preset dra-gru-tiny $small --data book.txt --out run-a $quick --sample-every 1 \
        --sample-tokens 20
    dra train --preset dra-ema-tiny $small --data book.txt --out run-b $quick
    dra tokenizer train --data book.txt --vocab 300 --out words
    dra probe recall --preset dra-gru-tiny $small --pairs 2 --length 16 --steps 1 --batch 2 \
        --tests 2 --json >probes.jsonl
}
rm -rf gpt rwkv
cp "$here/../data/pth/rwkv.pth" rwkv.pth
cp "$here/../data/nanogpt/bias.pt" ckpt.pt
mkdir llama-folder
cp "$here"/../data/llama/llama/[cm]*.* llama-folder
for family in lfm2 mamba2; do
    mkdir "$family"
    cp "$here/../data/llama/$family/config.json" "$here/../data/llama/$family/model.safetensors" "$family"
done

# Inputs of models that are not language models.
. "$here/../cli/tensors.sh"
tensors img:F32:2,1,8,8:64*0.5,32*0,32*1 labels:I32:2:3,7 >digits.safetensors
tensors x:F32:2,4,1:0,1,0.5,-1,2,1,0,0.5 >series.safetensors
tensors src:I32:2,4:79,110,99,101,97,32,98,0 tgt:I32:2,2:256,69,256,97 \
    src_mask:U8:2,4:1,1,1,1,1,1,1,0 >pairs.safetensors

# What worked examples find in a clone.
mkdir -p tests docs/examples
ln -s "$here/../data" tests/data
cp "$here"/../../docs/examples/*.sh "$here"/../../docs/examples/*.json docs/examples
