#!/bin/bash -eu
# Builds the in-process targets of fuzz/ into $OUT, each with its seeds, its dictionary and its options. ClusterFuzzLite runs this
# in its container, in the root of the repository. To fuzz real implementations, which cannot run in these containers, use
# `pmi-conform fuzz`.

cargo fuzz build --fuzz-dir fuzz -O --debug-assertions

# The output folder of cargo-fuzz.
built=${CARGO_TARGET_DIR:-fuzz/target}/$(rustc -vV | sed -n 's/^host: //p')/release
targets=$(sed -n 's|^path = "fuzz_targets/\(.*\)\.rs"|\1|p' fuzz/Cargo.toml)

for target in $targets; do
    cp "$built/$target" "$OUT/"
    seeds=$(mktemp -d)
    for folder in fuzz/seeds/"$target" fuzz/regressions/"$target"; do
        if [ -d "$folder" ]; then cp "$folder"/* "$seeds/"; fi
    done
    if [ "$target" = scenario ]; then
        # Each file gets its own name, because the archive has no folders.
        find scenarios -name '*.pmi' | while read -r file; do cp "$file" "$seeds/${file//\//_}"; done
    fi
    rm -f "$OUT/${target}_seed_corpus.zip"
    (cd "$seeds" && zip -q -r "$OUT/${target}_seed_corpus.zip" .)
    rm -r "$seeds"
    printf '[libfuzzer]\nmax_len = 2048\n' >"$OUT/$target.options"
    if [ -f "fuzz/dictionaries/$target.dict" ]; then cp "fuzz/dictionaries/$target.dict" "$OUT/"; fi
done
