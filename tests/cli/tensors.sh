# shellcheck shell=sh
# Small safetensors files for tests: `. tests/cli/tensors.sh`.

# The bytes of a list of numbers, as printf takes them. F32 has those that are listed here, N*X is
# X, N times.
number_bytes() { # DTYPE LIST
    echo "$2" | tr , '\n' | while read -r item; do
        times=1
        case $item in *'*'*) times=${item%%'*'*} item=${item#*'*'} ;; esac
        case $1:$item in
        U8:*) bytes=$(printf '\\%03o' "$item") ;;
        I32:-100) bytes='\234\377\377\377' ;;
        I32:*) bytes=$(printf '\\%03o\\%03o\\000\\000' $((item % 256)) $((item / 256))) ;;
        F32:0) bytes='\000\000\000\000' ;;
        F32:0.5) bytes='\000\000\000\077' ;;
        F32:1) bytes='\000\000\200\077' ;;
        F32:2) bytes='\000\000\000\100' ;;
        F32:-1) bytes='\000\000\200\277' ;;
        F32:nan) bytes='\000\000\300\177' ;;
        *) echo "no such number: $1 $item" >&2; return 1 ;;
        esac
        while [ "$times" -gt 0 ]; do
            printf '%s' "$bytes"
            times=$((times - 1))
        done
    done
}

# tensors NAME:DTYPE:SHAPE:LIST...: a safetensors file. Wider types must come first.
tensors() {
    header= data= at=0
    for part; do
        name=${part%%:*} rest=${part#*:}
        dtype=${rest%%:*} rest=${rest#*:}
        bytes=$(number_bytes "$dtype" "${rest#*:}") || return 1
        end=$((at + ${#bytes} / 4))
        header="$header,\"$name\":{\"dtype\":\"$dtype\",\"shape\":[${rest%%:*}],"
        header="$header\"data_offsets\":[$at,$end]}"
        at=$end data=$data$bytes
    done
    header="{${header#,}}"
    while [ $((${#header} % 8)) -ne 0 ]; do header="$header "; done
    printf "\\$(printf '%03o' $((${#header} % 256)))\\$(printf '%03o' $((${#header} / 256)))"
    printf '\0\0\0\0\0\0%s' "$header"
    printf "$data"
}

# The numbers of a file, without its header.
numbers_of() { tail -c +$(($(od -An -tu4 -N4 "$1") + 9)) "$1"; }
# The same as text, one in a line.
listed() {
    numbers_of "$1" | if grep -q '"F64"' "$1"; then od -An -v -tf8 -w8; else od -An -v -tf4 -w4; fi
}
